// Times computed by hand, for an A100 (108 multiprocessors of 2048 threads at 1.41 GHz, 40 MiB of L2, 2039 GB/s) with round constants.
#include <gtest/gtest.h>

#include <string>

#include "gpucast/gpu.h"
#include "src/time/card_rates.h"
#include "src/time/duration.h"
#include "src/time/kinds.h"

namespace gpucast {
namespace {

CardRates a100(const std::string& more = R"(,"cards":{"a100-80":null})") {
  return card_rates(find_gpu("a100-80"), R"({"schema_version":1,"operations":{
    "elementwise":{"all":{"source":"x","floor_ns":1500,"passes":1,"dram_fraction":1,"block_overlap":0.25,"block_row_cycles":282,"block_element_cycles":1.41,"block_step_cycles":1410,"block_passes":1}},
    "copy":{"all":{"source":"x","floor_ns":1000,"passes":1,"dram_fraction":1,"strided_fraction":0.5,"index_cycles":1.41,"cast_cycles":0.705,"pageable_bytes_per_s":5e9}},
    "reduction":{"all":{"source":"x","floor_ns":1000,"passes":1,"dram_fraction":1,"wait_cycles":1410,"start_cycles":705,"wait_overlap":1e-9,"merge_cycles":2820,"merge_load_cycles":141}},
    "memset":{"all":{"source":"x","floor_ns":1000,"passes":1,"dram_fraction":1}},
    "optimizer":{"all":{"source":"x","floor_ns":3000,"passes":1,"dram_fraction":1,"wait_cycles":282,"wait_overlap":1e-9}},
    "indexing":{"all":{"source":"x","floor_ns":2000,"passes":1,"dram_fraction":1,"element_cycles":1.41,"step_cycles":141,"sort_pass_cycles":14.1,"sort_row_cycles":0.141,"sort_cycles":1.41,"sort_fraction":0.5,"summed_element_cycles":1.41}},
    "unknown":{"all":{"source":"x","floor_ns":1000,"passes":2,"dram_fraction":0.5}},
    "collective":{"all":{"source":"x","floor_ns":10000}},
    "recurrent":{"all":{"source":"x","floor_ns":5000,"passes":1,"dram_fraction":1}},
    "normalization":{"all":{"source":"x","floor_ns":1000,"dram_fraction":1,"passes":1,"backward_passes":2,"batch_passes":1.5,"batch_backward_passes":1.25,"channel_bytes_per_cycle":100,"channel_backward_bytes_per_cycle":100,"channel_cycles":1e-6,"statistics_cycles":1.41,"statistics_backward_cycles":1e-6,"statistics_passes":1.5,"layer_backward_rows":1,"weight_sum_cycles":1.41,"weight_row_cycles":14.1,"reread_full":1,"reread_none":1,"kept_elements":10000,"kept_backward_elements":10000,"layer_rows_at_work":1e9,
      "softmax_overlap":0.25,"softmax_row_cycles":1e-6,"softmax_element_cycles":1e-6,"softmax_step_cycles":1e-6,"softmax_passes":1,
      "long_softmax_overlap":0.25,"long_softmax_row_cycles":1e-6,"long_softmax_element_cycles":1e-6,"long_softmax_step_cycles":1e-6,"long_softmax_passes":1.5,
      "layer_overlap":0.25,"layer_row_cycles":1e-6,"layer_element_cycles":1e-6,"layer_step_cycles":1410,"layer_passes":1,
      "plain_overlap":0.25,"plain_row_cycles":1e-6,"plain_element_cycles":1e-6,"plain_step_cycles":1e-6,"plain_passes":1}}},
    "architectures":{"8.0":{"rates":{"source":"x","dram_fraction":0.5,"l2_bytes_per_clock":20,"l2_full":0.5,"l2_none":1.5,"link_bytes_per_s":2e10}}})" +
                                             more + "}");
}

double ns(Operation operation, Bound bound, const CardRates& card = a100()) {
  const Duration duration = operation_duration(operation, card);
  EXPECT_EQ(bound_name(duration.bound), std::string(bound_name(bound)));
  EXPECT_LE(duration.low_ns, duration.expected_ns);
  EXPECT_GE(duration.high_ns, duration.expected_ns);
  return duration.expected_ns;
}

Operation bytes(OperationKind kind, int64_t read, int64_t written) {
  Operation operation;
  operation.kind = kind;
  operation.bytes_read = read;
  operation.bytes_written = written;
  return operation;
}

TEST(Memory, LargeTensorsMoveAtTheSustainedRate) {
  // 3 tensors of 340 MB at half of 2039 GB/s: 1020 MB / 1.0195 TB/s = 1.0005 ms.
  EXPECT_NEAR(ns(bytes(OperationKind::elementwise, 680'000'000, 340'000'000), Bound::memory), 1'000'490 + 1500, 10);
}

TEST(Memory, BytesThatFitIntoL2AreFaster) {
  // 10.15 MB are a quarter of L2. 108 x 1.41 GHz x 20 bytes = 3.0456 TB/s: 3.333 us.
  EXPECT_NEAR(ns(bytes(OperationKind::elementwise, 5'075'000, 5'075'000), Bound::memory), 3333 + 1500, 2);
  // Tensors as large as L2: half of the bytes are in it. 41,943,040 / 2 / 1.0195 TB/s = 20.57 us.
  EXPECT_NEAR(ns(bytes(OperationKind::elementwise, 20'971'520, 20'971'520), Bound::memory), 20'570 + 1500, 2);
}

TEST(Memory, SmallKernelsTakeALaunch) {
  EXPECT_NEAR(ns(bytes(OperationKind::elementwise, 4, 4), Bound::launch), 1500, 1);
  Operation optimizer = bytes(OperationKind::optimizer, 4096, 4096);
  optimizer.launches = 7;
  EXPECT_NEAR(ns(optimizer, Bound::launch), 7 * 3000, 5);
}

TEST(Memory, UnknownMovesItsBytesTwiceAtHalfTheRate) {
  EXPECT_NEAR(ns(bytes(OperationKind::unknown, 101'950'000, 0), Bound::memory), 4 * 100'000 + 1000, 1);
}

TEST(Memory, FillsOnlyWrite) { EXPECT_NEAR(ns(bytes(OperationKind::memset, 0, 1'019'500'000), Bound::memory), 1'000'000 + 1000, 1); }

TEST(Memory, CopiesGoOverTheBusOrAreTurnedAround) {
  Operation copy = bytes(OperationKind::copy, 0, 20'000'000);
  copy.from_host = true;
  EXPECT_NEAR(ns(copy, Bound::link), 1'000'000 + 1000, 1);  // 20 MB at 20 GB/s
  copy.pageable = true;
  EXPECT_NEAR(ns(copy, Bound::link), 4'000'000 + 1000, 1);  // at 5 GB/s
  copy = bytes(OperationKind::copy, 20'000'000, 20'000'000);
  copy.between_cards = true;
  EXPECT_NEAR(ns(copy, Bound::link), 66'667 + 1000, 1);  // at 300 GB/s, by NVLink
  copy = bytes(OperationKind::copy, 509'750'000, 509'750'000);
  EXPECT_NEAR(ns(copy, Bound::memory), 1'000'000 + 1000, 1);
  copy.strided = true;
  EXPECT_NEAR(ns(copy, Bound::memory), 2'000'000 + 1000, 1);
}

TEST(Memory, RepeatedAndJoinedTensorsComputeEachElementsPlace) {
  // 216 million elements of 2 bytes are written, one a nanosecond on each of 108 multiprocessors: 2 ms. Moving their 864 MB needs 0.85 ms.
  Operation cat = bytes(OperationKind::copy, 432'000'000, 432'000'000);
  cat.element_bytes = 2;
  cat.indexed = true;
  EXPECT_NEAR(ns(cat, Bound::compute), 2'000'000 + 1000, 1);
}

TEST(Memory, IndexingComputesEachElementsPlace) {
  // 108 million elements of 4 bytes, one a nanosecond on each of 108 multiprocessors: 1 ms. Moving their 864 MB needs 0.85 ms.
  EXPECT_NEAR(ns(bytes(OperationKind::indexing, 432'000'000, 432'000'000), Bound::compute), 1'000'000 + 2000, 1);
}

TEST(Memory, ConvertedElementsAreLookedUpForEachTensor) {
  // 216 million elements of two tensors, half a nanosecond each on each of 108 multiprocessors: 2 ms.
  Operation cast = bytes(OperationKind::copy, 432'000'000, 864'000'000);
  cast.cast_tensors = 2;
  EXPECT_NEAR(ns(cast, Bound::compute), 2'000'000 + 1000, 1);
}

TEST(Memory, AlignedRowsComputeAPlaceForSixteenBytes) {
  Operation cat = bytes(OperationKind::copy, 432'000'000, 432'000'000);
  cat.indexed = true, cat.moved_at_once = 16;
  EXPECT_NEAR(ns(cat, Bound::memory), 864e6 / 1.0195e3 + 1000, 50);
  Operation gather = bytes(OperationKind::indexing, 432'000'000, 432'000'000);
  gather.moved_at_once = 16;
  EXPECT_NEAR(ns(gather, Bound::memory), 864e6 / 1.0195e3 + 2000, 50);
  // Blocks that move a row each begin one after another.
  const CardRates card = a100();
  gather.row_blocks = 10'000'000;
  EXPECT_NEAR(ns(gather, Bound::launch), 1e7 * card.counted.block_cycles / 1.41 + 2000, 50);
}

TEST(Memory, AScanWaitsForLoadsAndStepsWaveAfterWave) {
  Operation scan = bytes(OperationKind::indexing, 4096, 4096);
  scan.waited_loads = 10, scan.waited_steps = 50;
  scan.waiting_threads = 108 * 2048;
  const double one_ns = 10 * a100().counted.load_ns + 50 * 100;
  EXPECT_NEAR(ns(scan, Bound::tail), one_ns + 2000, 1);
  scan.waiting_threads *= 3;
  EXPECT_NEAR(ns(scan, Bound::tail), 3 * one_ns + 2000, 1);
}

TEST(Memory, APassOfASortPutsItsElementsInOrder) {
  Operation pass = bytes(OperationKind::indexing, 1 << 20, 1 << 20);
  pass.waited_steps = 20, pass.waiting_threads = 1 << 16;
  pass.sorted_elements = 1 << 16;
  EXPECT_NEAR(ns(pass, Bound::compute), 65536 * 10.0 / 108 + 2000, 1);
  pass.sorted_elements = 1 << 10;
  EXPECT_NEAR(ns(pass, Bound::tail), 20 * 100 + 2000, 1);
}

// 108 x 1.41 GHz: 3.5 cycles a call of the generator, and a block every 1.19 cycles.
TEST(Memory, GeneratorsAndSmallBlocksTakeTheirTime) {
  const CardRates card = a100();
  Operation fill = bytes(OperationKind::elementwise, 0, 1 << 20);
  fill.draws = 1 << 20;
  EXPECT_NEAR(ns(fill, Bound::compute), 1048576 * card.draw_cycles / 108 / 1.41 + 1500, 1);
  fill.draws = 0, fill.row_blocks = 100'000;
  EXPECT_NEAR(ns(fill, Bound::launch), 1e5 * card.counted.block_cycles / 1.41 + 1500, 1);
}

TEST(Memory, AFillHasAFloorAndARateOfItsOwn) {
  CardRates card = a100();
  card.bytes[OperationKind::elementwise].fill_fraction = 1.25;
  card.bytes[OperationKind::elementwise].fill_floor_ns = 900;
  Operation fill = bytes(OperationKind::elementwise, 0, 1'000'000'000);
  EXPECT_NEAR(ns(fill, Bound::memory, card), 1e9 / (1.25 * 1.0195e3) + 900, 100);
  EXPECT_EQ(after_sweep_ns(fill, operation_duration(fill, card), card), 0);
  fill.draws = 1;
  EXPECT_NEAR(ns(fill, Bound::memory, card), 1e9 / 1.0195e3 + 1500, 100);
  // arange() has no tensor yet when it begins.
  fill = bytes(OperationKind::elementwise, 0, 0), fill.row_blocks = 1;
  EXPECT_NEAR(ns(fill, Bound::launch, card), 900, 2);
}

// L2 loses a line where more than one and a half times its 40 MiB follow before the line's next element: each element then costs 64 bytes.
TEST(Memory, ATransposedCopyOfLongRowsReadsItsLinesAgain) {
  Operation copy = bytes(OperationKind::copy, 101'950'000, 101'950'000);
  copy.strided = true, copy.element_bytes = 4, copy.far_elements = 25'000'000;
  copy.far_lines = 1000;
  EXPECT_NEAR(ns(copy, Bound::memory), 400'000 + 1000, 1);
  copy.far_lines = 1 << 20;
  EXPECT_NEAR(ns(copy, Bound::memory), 400'000 + 25e6 * 60 / 1.0195e3 + 1000, 50);
}

TEST(Memory, ASumInFewBlocksWaitsForItsLoads) {
  // 16 MB could be moved in 8 us. A thread's 20 loads take 1 us each, its begin and end half of one.
  Operation sum = bytes(OperationKind::reduction, 16'000'000, 16'000);
  sum.waited_loads = 20, sum.waiting_threads = 4096;
  EXPECT_NEAR(ns(sum, Bound::tail), 20'500 + 1000, 5);
  sum.waiting_threads = 2 * 108 * 2048;  // twice what the card holds
  EXPECT_NEAR(ns(sum, Bound::tail), 2 * 20'500 + 1000, 5);
  sum.waiting_threads = 4096, sum.merged_loads = 30;  // 2 us, and 30 loads of 0.1 us
  EXPECT_NEAR(ns(sum, Bound::tail), 25'500 + 1000, 5);
  Operation step = bytes(OperationKind::optimizer, 8192, 4096);
  step.waited_loads = 64, step.launches = 2;  // each of two kernels: 64 x 0.2 us
  EXPECT_NEAR(ns(step, Bound::tail), 2 * (64 * 200 + 3000), 5);
}

TEST(Rows, ABlockARowWaitsForItself) {
  // 2 rows of 4096: 4 steps of 1000 ns one after another, although most of the card is idle.
  Operation rows = bytes(OperationKind::elementwise, 2 * 4096 * 4, 2 * 4096 * 4);
  rows.rows = 2;
  rows.columns = 4096;
  EXPECT_NEAR(ns(rows, Bound::tail), 4000 + 1500, 1);
  // 10,800 rows, 100 a multiprocessor, each 200 ns and 4096 ns: 429.6 us. Moving the 353.9 MB needs 347.1 us.
  rows.rows = 10800;
  rows.bytes_read = rows.bytes_written = int64_t{10800} * 4096 * 4;
  EXPECT_NEAR(ns(rows, Bound::compute), together_ns(429'600, 347'120, 0.25) + 1500, 20);
}

Operation normalization(int64_t rows, int64_t columns, int64_t more_read, int64_t more_written) {
  Operation operation = bytes(OperationKind::normalization, rows * columns * 4 + more_read, rows * columns * 4 + more_written);
  operation.rows = rows;
  operation.columns = columns;
  return operation;
}

TEST(Rows, NormalizationsAreToldApartByTheirBytes) {
  const int64_t rows = 1 << 16;
  const double once = 1e9 * 2 * rows * 1024 * 4 / 1.0195e12;
  EXPECT_NEAR(ns(normalization(rows, 1024, 0, 0), Bound::memory), once + 1000, 10);  // softmax
  // Half of a long row is read again. Half of L2 holds 20 of the 81 MiB that the multiprocessors work on: that part is read from L2.
  const double gone = 1 - 20.0 / 81;
  EXPECT_NEAR(ns(normalization(rows / 2, 2048, 0, 0), Bound::memory), once * (1 + 0.5 * gone) + 1000, 10);
  Operation backward = normalization(rows, 1024, rows * 1024 * 4, 0);  // softmax; the product before it is an operation of its own
  backward.pass = Pass::backward;
  EXPECT_NEAR(ns(backward, Bound::memory), 1.5 * once + 1000, 20);
  backward.bytes_read += 4096;  // layer norm: has weights
  EXPECT_NEAR(ns(backward, Bound::memory), 1.5 * once * (1 + gone) + 1000, 20);
}

TEST(Rows, BatchNormOfFewChannelsUsesFewMultiprocessors) {
  // 32 channels of 2^20 values: 1024 steps of 1000 ns, though 108 multiprocessors could move 268 MB in 0.26 ms.
  EXPECT_NEAR(ns(normalization(32, 1 << 20, 256, 256), Bound::tail), 1'024'000 + 1000, 10);
}

// The constants of the formulas are data, too: each changes the time that it belongs to.
TEST(Formulas, ChangedNumbersMoveTheTimes) {
  const auto with = [](const std::string& kind, const std::string& number) {
    return card_rates(find_gpu("a100-80"),
                      R"({"schema_version":1,"cards":{"a100-80":{")" + kind + R"(":{"all":{"source":"x",)" + number + "}}}}}");
  };
  const CardRates plain = card_rates(find_gpu("a100-80"));
  Operation lstm = bytes(OperationKind::recurrent, 1000, 1000);
  lstm.precision = Precision::fp16;
  lstm.flops = 1e15;
  EXPECT_NEAR(recurrent_time(lstm, with("recurrent", R"("efficiency":0.25)")).ns / recurrent_time(lstm, plain).ns, 2, 1e-3);
  Operation rows = normalization(1 << 15, 4096, 4096, 0);
  const CardRates small =
      card_rates(find_gpu("a100-80"), R"({"schema_version":1,"operations":{"rates":{"source":"x","at_work_bytes":1e9}}})");
  EXPECT_GE(normalization_time(rows, small).ns, normalization_time(rows, plain).ns);
  Operation grouped;
  grouped.kind = OperationKind::convolution;
  grouped.precision = Precision::fp16;
  grouped.element_bytes = 2;
  ConvolutionShape& shape = grouped.convolution;
  shape.batch = 64, shape.in_channels = shape.out_channels = 256, shape.groups = 4, shape.channels_last = true, shape.by_library = true;
  for (int i = 0; i < 2; ++i) shape.in[i] = shape.out[i] = 28, shape.window[i] = 3;
  EXPECT_GT(convolution_time(grouped, with("convolution", R"("grouped_tile":4096,"forward_grouped":0.5)")).ns,
            convolution_time(grouped, with("convolution", R"("forward_grouped":0.5)")).ns);
}

// An address costs 1 ns of a multiprocessor, and half as much more where a warp reads 16 lines. Its first load is back after 1 us.
TEST(Memory, ACopyAcrossRowsReadsManyLines) {
  const CardRates card =
      a100(R"(,"cards":{"a100-80":{"copy":{"all":{"source":"x","line_cycles":1.41,"start_cycles":1410,"wait_overlap":1e-9}}}})");
  Operation copy = bytes(OperationKind::copy, 4'320'000, 4'320'000);
  copy.indexed = true;
  EXPECT_NEAR(ns(copy, Bound::compute, card), 1'080'000 / 108.0 + 1000, 5);
  copy.warp_lines = 16;
  EXPECT_NEAR(ns(copy, Bound::compute, card), 1.5 * 1'080'000 / 108.0 + 1000, 5);
  copy.bytes_read = copy.bytes_written = 4000;
  EXPECT_NEAR(operation_duration(copy, card).expected_ns, 1000 + 1000, 5);
}

// On 108 multiprocessors of 2,048 threads at 1.41 GHz, 1.41 cycles are 1 ns. Two waves: each thread waits 100 ns, then 4 times 1,000 + 20 +
// 30 + 200 ns for an element. Divisions: 2 ns of a multiprocessor for each of 4,096 threads.
TEST(Memory, ThreadsOfAnImagesKernelWaitForTheirElements) {
  const CardRates card = a100(R"(,"cards":{"a100-80":{"elementwise":{"all":{"source":"x","wait_overlap":1e-9,"start_cycles":141,
    "wait_cycles":1410,"near_load_cycles":14.1,"joined_load_cycles":14.1,"atomic_cycles":141,"division_cycles":1.41}}}})");
  Operation pool = bytes(OperationKind::elementwise, 1000, 1000);
  pool.waiting_threads = 108 * 2048 * 2;
  pool.element_work = {.elements = pool.waiting_threads * 4, .waited_loads = 1, .near_loads = 2, .joined_loads = 3, .atomics = 2};
  EXPECT_NEAR(ns(pool, Bound::tail, card), 2 * (100 + 4 * 1250) + 1500, 5);
  pool.element_work.of_thread = 10;
  EXPECT_NEAR(ns(pool, Bound::tail, card), 2 * (100 + 10 * 1250) + 1500, 5);
  pool.element_work.divisions = 2;
  EXPECT_NEAR(ns(pool, Bound::tail, card), 2 * (100 + 10 * 1250) + 2 * 4096 + 1500, 5);
  pool.element_work.atomic_sectors = 108 * 1e5;
  EXPECT_NEAR(ns(pool, Bound::tail, card), 1e5 * card.counted.atomic_cycles / 1.41 + 1500, 5);
  pool.waiting_threads = 0;  // the kernel is not known
  EXPECT_LT(operation_duration(pool, card).expected_ns, 1600);
}

TEST(Recurrent, StepsFollowEachOther) {
  Operation lstm = bytes(OperationKind::recurrent, 1000, 1000);
  lstm.rows = 100;
  EXPECT_NEAR(ns(lstm, Bound::launch), 101 * 5000, 1);
}

// 100 steps of 64 samples, 1,024 numbers of 4 gates, 256 of a state and of the inputs.
TEST(Recurrent, WithSizesItIsItsProductsAndACellInEachStep) {
  const CardRates card =
      a100(R"(,"cards":{"a100-80":{"recurrent":{"all":{"source":"x","data_gradient":2,"weight_gradient":3,"sum_bytes_per_cycle":10}}}})");
  Operation lstm = bytes(OperationKind::recurrent, 1000, 1000);
  lstm.rows = 100, lstm.element_bytes = 4, lstm.gemm = {1, 64, 1024, 256, false, true};
  lstm.flops = 2.0 * 100 * 64 * 1024 * (256 + 256);
  const auto product = [&](int64_t m, int64_t n, int64_t k) {
    Operation out = bytes(OperationKind::gemm, 0, 0);
    out.gemm = {1, m, n, k, false, true};
    return gemm_time(out, card).ns;
  };
  const double cell_ns = 64 * (2 * 1024 + 3 * 256) * 4 / 3.0456e3;  // L2
  EXPECT_NEAR(recurrent_time(lstm, card).ns, product(6400, 1024, 256) + 100 * (product(64, 1024, 256) + 5000 + cell_ns), 1);
  lstm.layers = 2;  // 8 steps at a time: 13 products of 492 samples
  EXPECT_NEAR(recurrent_time(lstm, card).ns, 13 * product(492, 1024, 256) + 100 * (product(64, 1024, 256) + 5000 + cell_ns), 1);
  lstm.layers = 1;
  lstm.pass = Pass::data_gradient;
  EXPECT_NEAR(recurrent_time(lstm, card).ns, product(6400, 256, 1024) + 100 * (2 * product(64, 256, 1024) + 5000 + 1.5 * cell_ns), 1);
  lstm.pass = Pass::weight_gradient;
  EXPECT_NEAR(recurrent_time(lstm, card).ns, 2 * 3 * product(1024, 256, 6400) + 6400 * 1024 * 4 / (8 * 10 * 1.41), 1);
}

// 2 x 100 MB and 100 MB at 1.0195 TB/s, by 1.5 and 1.25 passes.
TEST(Memory, BatchNormReadsItsInputsTwice) {
  Operation norm = bytes(OperationKind::normalization, 100'000'000, 100'000'000);
  norm.rows = 64, norm.columns = 781'250, norm.element_bytes = 2, norm.per_channel = true;
  EXPECT_NEAR(ns(norm, Bound::memory), 200e6 * 1.5 / 1.0195e3 + 1000, 50);
  norm.pass = Pass::backward, norm.bytes_read *= 2;
  EXPECT_NEAR(ns(norm, Bound::memory), 300e6 * 1.25 / 1.0195e3 + 1000, 50);
}

// A channel's block reads 100 bytes in a cycle at 1.41 GHz: one block reads 0.141 TB/s, eight blocks could read more than the memory gives.
TEST(Memory, FewChannelsOfABatchNormCannotAskForAllOfTheMemory) {
  Operation norm = bytes(OperationKind::normalization, 100'000'000, 100'000'000);
  norm.rows = 1, norm.columns = 25'000'000, norm.element_bytes = 4, norm.per_channel = true;
  EXPECT_NEAR(ns(norm, Bound::tail), 200e6 * 1.5 / 141 + 1000, 50);
  norm.rows = 8, norm.columns /= 8;
  EXPECT_NEAR(ns(norm, Bound::memory), 200e6 * 1.5 / 1.0195e3 + 1000, 50);
}

// 4 bytes of key and 8 of place, read and written. Memory: 1.0195 TB/s. One block: 8 rounds of 4 bits at 1 ns on one multiprocessor. Long
// rows: 6 passes of 6 bits that read the key twice, at half the rate. Few rows, sorted as one: 4 passes of 8 bits and one for the row.
TEST(SortTime, RowsOfOneBlockLongRowsAndFewRows) {
  const auto sort = [](int64_t rows, int64_t columns) {
    Operation out = bytes(OperationKind::indexing, 12 * rows * columns, 12 * rows * columns);
    out.rows = rows, out.columns = columns, out.sort_bits = 32;
    return out;
  };
  EXPECT_NEAR(ns(sort(4096, 4096), Bound::compute), 8 * 4096.0 * 4096 / 108 + 2000, 50);
  EXPECT_NEAR(ns(sort(4096, 8192), Bound::memory), 6 * 28 * 4096.0 * 8192 / (1.0195e3 / 2) + 6 * 2000, 50);
  EXPECT_NEAR(ns(sort(16, 1 << 19), Bound::memory), 5 * 24 * 8388608.0 / 1.0195e3 + 5 * 2000, 50);
  // Alone, a block takes four steps of 0.1 us and a tenth of a nanosecond for each element, in each round.
  EXPECT_NEAR(ns(sort(1, 4096), Bound::tail), 8 * (4 * 100 + 4096 * 0.1) + 2000, 1);
  EXPECT_NEAR(ns(sort(1, 1 << 23), Bound::memory), 4 * 24 * 8388608.0 / 1.0195e3 + 4 * 2000, 50);
}

// Blocks of 768 threads leave a quarter of a multiprocessor's 2,048 empty.
TEST(Memory, SumsOfRowsTakeTimeForEachElement) {
  Operation sum = bytes(OperationKind::indexing, 1 << 20, 1 << 20);
  sum.summed_rows = 50000, sum.columns = 1024;
  EXPECT_NEAR(ns(sum, Bound::compute), 50000 * 1024.0 / 108 + 2000, 50);
  sum.columns = 768;
  EXPECT_NEAR(ns(sum, Bound::compute), 50000 * 768.0 / 108 / 0.75 + 2000, 50);
}

// On 108 multiprocessors at 1.41 GHz, 1.41 cycles for an element: 1 ns on one multiprocessor.
TEST(NormalizationTime, ABackwardThatSumsTheWeightsGradientsTakesLonger) {
  Operation norm = bytes(OperationKind::normalization, 2 << 20, 1 << 20);
  norm.rows = 512, norm.columns = 512, norm.element_bytes = 4, norm.pass = Pass::backward;
  norm.bytes_read += 4096;  // statistics: no softmax
  const double without = operation_duration(norm, a100()).expected_ns;
  norm.sums_weights = true;
  EXPECT_NEAR(operation_duration(norm, a100()).expected_ns - without, 512.0 * 512 / 108, 0.5);
}

// A block needs 10 ns for a row of its 32 columns: 2 blocks, whatever the card has. From 65,537 rows on, all multiprocessors share them.
TEST(NormalizationTime, SumsByColumnsHaveFewBlocks) {
  const auto sums_ns = [](int64_t rows) {
    Operation norm = bytes(OperationKind::normalization, 2 * rows * 64 * 4 + 8 * rows, rows * 64 * 4);
    norm.rows = rows, norm.columns = 64, norm.pass = Pass::backward;
    const double without = operation_duration(norm, a100()).expected_ns;
    norm.sums_weights = norm.sums_by_columns = true;
    return operation_duration(norm, a100()).expected_ns - without;
  };
  EXPECT_NEAR(sums_ns(4096), 4096 * 10, 1);
  EXPECT_NEAR(sums_ns(65536), 65536 * 10, 10);
  EXPECT_NEAR(sums_ns(65537), 65537.0 * 2 * 10 / 108, 10);
}

// A multiprocessor works on one row of 8 KiB: its second reading comes from L2.
TEST(NormalizationTime, FewRowsAtWorkAreReadOnce) {
  Operation norm = normalization(1 << 15, 2048, 4096, 1 << 18);
  const double passes = 1 - (1 - 20.0 / 81) + 2 * (1 - 20.0 / 81);
  const auto layer_ns = [&](const std::string& rows) {
    return ns(norm, Bound::memory,
              a100(R"(,"cards":{"a100-80":{"normalization":{"all":{"source":"x","layer_passes":2,"layer_rows_at_work":)" + rows + "}}}}"));
  };
  EXPECT_NEAR((layer_ns("1e9") - 1000) / (layer_ns("1") - 1000), passes, 1e-3);
}

// 150 loads of 500 cycles at 1.41 GHz, in three passes; backward: two.
TEST(NormalizationTime, AThreadOfASpatialSoftmaxWaitsForEachElement) {
  Operation softmax = normalization(1 << 16, 150, 0, 0);
  softmax.spatial_threads = 1 << 16;
  EXPECT_NEAR(ns(softmax, Bound::tail), 150 * 3 * 500 / 1.41 + 1000, 10);
  softmax.pass = Pass::backward, softmax.bytes_read *= 2;
  EXPECT_NEAR(ns(softmax, Bound::memory), 3 * 65536 * 150 * 4 / 1.0195e3 + 1000, 50);
}

// A second round of 4,096 elements costs 750 cycles a row; a block that is alone on its multiprocessor loads nothing meanwhile.
TEST(NormalizationTime, ASoftmaxInManyRegistersDoesNotLoadWhileItComputes) {
  Operation softmax = normalization(1 << 15, 8192, 0, 0);
  const double together = ns(softmax, Bound::memory), rounds = 32768.0 * 750 / 108 / 1.41;
  softmax.in_registers = true;
  const double memory = 2.0 * 32768 * 8192 * 4 * (1 + 0.5 * (1 - 20.0 / 81)) / 1.0195e3;
  EXPECT_NEAR(ns(softmax, Bound::memory), memory + rounds + 1000, 100);
  EXPECT_LT(together, memory + rounds / 2);
}

// 1 ns on one multiprocessor for an element's sums. The output's kernel moves its 200 MB 1.5 times; backward: 300 MB, and 200 MB for sums.
TEST(NormalizationTime, AChannelsLastBatchNormHasAKernelForItsSums) {
  Operation norm = bytes(OperationKind::normalization, 100'000'000, 100'000'000);
  norm.rows = 64, norm.columns = 781'250, norm.element_bytes = 2, norm.per_channel = norm.channels_last = true;
  EXPECT_NEAR(ns(norm, Bound::compute), 50e6 / 108 + 1.5 * 200e6 / 1.0195e3 + 1000, 50);
  norm.pass = Pass::backward, norm.bytes_read *= 2;
  EXPECT_NEAR(ns(norm, Bound::memory), 200e6 / 1.0195e3 + 1.5 * 300e6 / 1.0195e3 + 1000, 50);
}

}  // namespace
}  // namespace gpucast

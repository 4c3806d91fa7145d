#include "src/time/duration.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "gpucast/gpu.h"
#include "src/time/kinds.h"

namespace gpucast {
namespace {

// Ten multiprocessors at 1 GHz. Each needs 1 ns for one step of k of a 128 x 128 tile. Memory and L2 need no time.
CardRates paper_card() {
  CardRates card;
  card.capability = 80;
  card.multiprocessors = 10;
  card.clock_hz = 1e9;
  card.tail_fill = 0.75;
  card.l2_bytes = 1e6;
  card.dram_bytes_per_s = card.l2_bytes_per_s = 1e30;
  for (size_t p = 0; p < kPrecisionCount; ++p) {
    const auto precision = static_cast<Precision>(p);
    card.sustained_flop_per_s[precision] = 10.0 * 2 * 128 * 128 * 1e9;
    card.tensor_cores[precision] = precision != Precision::fp32;
    GemmConstants& gemm = card.gemm[precision];
    gemm.feed_bytes_per_cycle = gemm.l2_bytes_per_cycle = 1e30;
    gemm.floor_cycles = 1000;
    gemm.warm_inputs = gemm.warm_weights = 1e-9;
    gemm.throttle_ns = 1;
    gemm.batched_tile_m = gemm.batched_tile_n = 128;
    gemm.largest_tile = 1e9;
    gemm.thin = 8;
    gemm.least_part = 128;
  }
  return card;
}

Operation product(int64_t batch, int64_t m, int64_t n, int64_t k, Precision precision = Precision::fp32) {
  Operation operation;
  operation.kind = OperationKind::gemm;
  operation.precision = precision;
  operation.element_bytes = precision == Precision::fp32 ? 4 : 2;
  operation.gemm = {batch, m, n, k, false, false};
  return operation;
}

TEST(GemmTime, TilesGoInWaves) {
  CardRates card = paper_card();
  EXPECT_DOUBLE_EQ(gemm_time(product(2, 128, 128, 1024), card).ns, 1000 + 1024);   // two tiles side by side
  EXPECT_DOUBLE_EQ(gemm_time(product(10, 128, 128, 1024), card).ns, 1000 + 1024);  // one full wave
  EXPECT_EQ(gemm_time(product(10, 128, 128, 1024), card).bound, Bound::compute);
  EXPECT_DOUBLE_EQ(gemm_time(product(11, 128, 128, 1024), card).ns, 1000 + 2048);  // the second wave holds one tile
  EXPECT_EQ(gemm_time(product(11, 128, 128, 1024), card).bound, Bound::tail);
  EXPECT_DOUBLE_EQ(gemm_time(product(10, 129, 128, 1024), card).ns, 1000 + 2048);  // one more row needs one more tile
  card.gemm[Precision::fp32].wave_smoothing = 1;
  EXPECT_DOUBLE_EQ(gemm_time(product(11, 128, 128, 1000), card).ns, 1000 + 1100);
}

TEST(GemmTime, EachConstantHasItsEffect) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::fp32];
  const auto ns = [&] { return gemm_time(product(10, 128, 128, 1024), card).ns - 1000; };
  c.k_overhead = 76;
  EXPECT_DOUBLE_EQ(ns(), 1100);
  c.tile_cycles = 50;
  EXPECT_DOUBLE_EQ(ns(), 1150);
  c.k_overhead = c.tile_cycles = 0;
  c.edge = 0.2;  // 128 / 128 + 128 / 128 - 1.5 = 0.5 of it
  EXPECT_DOUBLE_EQ(ns(), 1024 * 1.1);
  c.edge = 0;
  c.least_k_cycles = 3;
  EXPECT_DOUBLE_EQ(ns(), 3 * 1024);
  c.least_k_cycles = 0;
  c.feed_bytes_per_cycle = 256;  // 2 x 128 numbers of 4 bytes a step
  EXPECT_DOUBLE_EQ(ns(), 4 * 1024);
  c.feed_bytes_per_cycle = 1e30;
  c.throttle = 0.5;
  c.throttle_ns = 1024;
  EXPECT_DOUBLE_EQ(ns(), 1024 * 1.25);
}

TEST(Together, AShortOneIsHiddenAndTwoAlikeOverlapInPart) {
  EXPECT_DOUBLE_EQ(together_ns(100, 100, 0.5), 150);
  EXPECT_DOUBLE_EQ(together_ns(100, 100, 1), 200);
  EXPECT_DOUBLE_EQ(together_ns(30, 40, std::sqrt(2) - 1), 50);  // p = 2
  EXPECT_LT(together_ns(100, 10, 0.5), 103);
  EXPECT_DOUBLE_EQ(together_ns(10, 100, 0.5), together_ns(100, 10, 0.5));
  EXPECT_DOUBLE_EQ(together_ns(100, 0, 0.5), 100);
  EXPECT_DOUBLE_EQ(together_ns(0, 0, 0.5), 0);
  EXPECT_DOUBLE_EQ(together_ns(100, 100, 0), 100);
}

// The clock falls lower on a card with 989.4 TFLOP/s from 700 W than on one with 312 from 400 W.
TEST(CardRates, LongProductsLoseMoreClockWithMoreFlopsForAWatt) {
  const auto throttle = [](const char* gpu, double constant) {
    const std::string file =
        fmt::format(R"({{"schema_version":1,"cards":{{"{}":{{"gemm":{{"fp16":{{"source":"x","throttle":{},"most_throttle":0.36}}}}}}}}}})",
                    gpu, constant);
    return card_rates(find_gpu(gpu), file).gemm[Precision::fp16].throttle;
  };
  EXPECT_NEAR(throttle("h200", 0.2), 0.2 * 989.4 / 700, 1e-6);
  EXPECT_NEAR(throttle("a100-80", 0.2), 0.2 * 312 / 400, 1e-6);
  EXPECT_DOUBLE_EQ(throttle("h200", 0.3), 0.36);  // the most that a measured card lost
}

TEST(GemmTime, AHalfOfL2KeepsItsOwnCopy) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::fp32];
  c.warm_inputs = c.warm_weights = 1;
  c.l2_bytes_per_cycle = 1e30;
  card.dram_bytes_per_s = 1e9;
  const Operation small = product(1, 128, 128, 1024);  // 524 KB each, of 1 MB
  EXPECT_LT(gemm_time(small, card).ns, 10'000);
  card.l2_copies = 2;  // 24 KB more than half of L2: that part comes from memory, twice
  EXPECT_NEAR(gemm_time(small, card).ns, 1000 + 2 * 524'288 * (524'288 / 5e5 - 1), 1000);
}

// By hand: an addition of 2 x 4 MB to 4 MB on a card with 40 MB of L2 and 1 GB/ms.
TEST(AfterASweep, BytesComeFromMemoryAndAShareOfTheirPlacesIsWrittenBack) {
  CardRates card = paper_card();
  card.l2_bytes = 40e6;
  card.dram_bytes_per_s = 1e12;
  card.unwritten_share = 0.25;
  card.bytes[OperationKind::elementwise] = {1, 1, 1000};
  Operation add;
  add.kind = OperationKind::elementwise;
  add.bytes_read = 8'000'000;
  add.bytes_written = 4'000'000;
  Duration from_l2;
  from_l2.expected_ns = 3000;
  EXPECT_DOUBLE_EQ(after_sweep_ns(add, from_l2, card), 1000 + 12'000 - 3000 + 3000);
  add.bytes_read = 800'000'000, add.bytes_written = 0;
  Duration from_memory;
  from_memory.expected_ns = 801'000;
  EXPECT_DOUBLE_EQ(after_sweep_ns(add, from_memory, card), 10'000) << "a quarter of L2";
  Operation fill;
  fill.kind = OperationKind::elementwise;
  fill.bytes_written = 40'000'000;
  EXPECT_TRUE(sweeps_l2(fill, card));
  fill.bytes_read = 1;
  EXPECT_FALSE(sweeps_l2(fill, card));
  fill.bytes_read = 0, fill.bytes_written = 39'999'999;
  EXPECT_FALSE(sweeps_l2(fill, card));
}

TEST(GemmTime, ThinProductsHaveNoTiles) {
  CardRates card = paper_card();
  card.dram_bytes_per_s = 1e9;
  GemmConstants& c = card.gemm[Precision::fp16];
  c.k_overhead = 1e6;
  c.thin_passes = 2;
  const double bytes = 2.0 * (1e6 * 4 + 4 * 4 + 1e6 * 4);
  const Estimate thin = gemm_time(product(1, 1'000'000, 4, 4, Precision::fp16), card);
  EXPECT_NEAR(thin.ns, 1000 + 2 * bytes, 1);
  EXPECT_EQ(thin.bound, Bound::memory);
  EXPECT_GT(gemm_time(product(1, 1'000'000, 16, 4, Precision::fp16), card).ns, 1e8);
}

TEST(GemmTime, WaitsForMemoryOrTheLaunch) {
  CardRates card = paper_card();
  card.dram_bytes_per_s = 1e9;  // a byte a ns
  const Estimate memory = gemm_time(product(10, 128, 128, 64), card);
  EXPECT_DOUBLE_EQ(memory.ns, 1000 + 10 * 4 * (128 * 64 + 64 * 128 + 128 * 128));
  EXPECT_EQ(memory.bound, Bound::memory);
  card.gemm[Precision::fp32].overlap = 0.5;
  const double moved_ns = memory.ns - 1000;
  EXPECT_NEAR(gemm_time(product(10, 128, 128, 64), card).ns, 1000 + together_ns(moved_ns, 64, 0.5), 1e-6);
  EXPECT_EQ(gemm_time(product(10, 1, 1, 8), paper_card()).bound, Bound::launch);
  EXPECT_DOUBLE_EQ(gemm_time(product(1, 0, 128, 64), paper_card()).ns, 1000);  // nothing to compute
}

// One tile on ten multiprocessors: k is cut. 8 parts of 128 need an eighth of the time; their sum costs split_cycles.
TEST(GemmTime, AFewTilesShareTheirK) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::bf16];
  c.edge = 1e9;  // smaller tiles do not help: with the largest two, 128 / 256 + 128 / 128 - 1.5 = 0
  EXPECT_DOUBLE_EQ(gemm_time(product(1, 256, 128, 1024, Precision::bf16), card).ns, 1000 + 2 * 1024 / 8.0);
  c.split_cycles = 300;
  EXPECT_DOUBLE_EQ(gemm_time(product(1, 256, 128, 1024, Precision::bf16), card).ns, 1000 + 300 + 2 * 1024 / 8.0);
  c.split_cycles = 30000;
  EXPECT_DOUBLE_EQ(gemm_time(product(1, 256, 128, 1024, Precision::bf16), card).ns, 1000 + 2 * 1024);
}

// The sums of the parts are another kernel's work, after the products and their memory.
TEST(GemmTime, SumsOfPartsDoNotHideBehindMemory) {
  CardRates card = paper_card();
  card.dram_bytes_per_s = 1e12;
  GemmConstants& c = card.gemm[Precision::bf16];
  c.edge = 1e9;
  const double moved_ns = 2.0 * (256 * 1024 + 128 * 1024 + 256 * 128) / 1e3;  // 852 ns, longer than the products in 8 parts
  c.split_cycles = 300;
  EXPECT_NEAR(gemm_time(product(1, 256, 128, 1024, Precision::bf16), card).ns, 1000 + 300 + moved_ns, 1e-6);
}

TEST(GemmTime, LaterTilesStartEarly) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::fp32];
  const auto ns = [&](int64_t batch) { return gemm_time(product(batch, 128, 128, 1024), card).ns - 1000; };
  c.k_overhead = 100;
  EXPECT_DOUBLE_EQ(ns(10), 1124);
  EXPECT_DOUBLE_EQ(ns(30), 3 * 1124);
  c.later_overhead = 0.25;
  EXPECT_DOUBLE_EQ(ns(10), 1124);
  EXPECT_DOUBLE_EQ(ns(30), 3 * (1024 + 25) + 75);
}

// Ten multiprocessors: a tile alone waits 4 ns for each step of k; four small tiles wait at the same time.
TEST(GemmTime, SmallTilesShareAMultiprocessorsWaits) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::bf16];
  c.least_part = 1e9;
  c.latency_cycles = 4;
  const auto ns = [&](int64_t batch) { return gemm_time(product(batch, 32, 32, 1024, Precision::bf16), card).ns - 1000; };
  EXPECT_DOUBLE_EQ(ns(10), 4 * 1024);
  EXPECT_DOUBLE_EQ(ns(40), 4 * 1024);
  EXPECT_DOUBLE_EQ(ns(41), 2 * 4 * 1024);
  c.resident = 0.0625;  // a tile of 32 x 32
  EXPECT_DOUBLE_EQ(ns(40), 4 * 4 * 1024);
}

// One tile and ten multiprocessors: k is cut into eight parts, but not in a small product.
TEST(GemmTime, SmallProductsKeepTheirKWhole) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::bf16];
  const auto ns = [&](int64_t m, int64_t k) { return gemm_time(product(1, m, 32, k, Precision::bf16), card).ns; };
  const double cut_ns = ns(32, 1024), vector_ns = ns(1, 1024);
  c.whole_products = 2e6;
  c.whole_k = 4095;
  EXPECT_GT(ns(32, 1024), 4 * cut_ns - 4000);
  EXPECT_DOUBLE_EQ(ns(1, 1024), vector_ns);
  EXPECT_LT(ns(32, 2048), ns(32, 1024));
  EXPECT_LT(ns(8, 4096), ns(32, 1024));
}

TEST(GemmTime, TwiceTheWorkIsNotFasterWhereKStaysWhole) {
  const CardRates card = card_rates(find_gpu("l40s"));
  const GemmConstants& c = card.gemm[Precision::bf16];
  const auto ns = [&](int64_t m, int64_t n, int64_t k) { return gemm_time(product(1, m, n, k, Precision::bf16), card).ns; };
  for (int64_t m = 2; m <= 512; m *= 2) {
    for (int64_t n = 16; n <= 2048; n *= 2) {
      for (int64_t k = 64; 2 * static_cast<double>(k) <= c.whole_k && 2 * static_cast<double>(m * n * k) < c.whole_products; k *= 2) {
        EXPECT_GE(ns(2 * m, n, k), ns(m, n, k) * 0.97) << m << ' ' << n << ' ' << k;
        EXPECT_GE(ns(m, 2 * n, k), ns(m, n, k) * 0.97) << m << ' ' << n << ' ' << k;
        EXPECT_GE(ns(m, n, 2 * k), ns(m, n, k) * 0.97) << m << ' ' << n << ' ' << k;
      }
    }
  }
}

// Ten multiprocessors and twenty tiles of 128 x 128 are two waves; tiles of 128 x 64 are four of half the length, with four starts.
TEST(GemmTime, ShortSumsHaveSmallTiles) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::bf16];
  c.least_part = 1e9;
  c.tile_cycles = 100;
  const auto ns = [&](int64_t k) { return gemm_time(product(20, 128, 128, k, Precision::bf16), card).ns - 1000; };
  EXPECT_DOUBLE_EQ(ns(128), 2 * (128 + 100));
  c.short_k = 256;
  EXPECT_DOUBLE_EQ(ns(128), 4 * (64 + 100));
  EXPECT_DOUBLE_EQ(ns(256), 2 * (256 + 100));
}

// Batched kernels of plain cores have few threads a block, so that a block alone waits longer. A single product's kernel does not.
TEST(GemmTime, BatchedTilesOfPlainCoresWaitLonger) {
  CardRates card = paper_card();
  const auto ns = [&](int64_t batch) { return gemm_time(product(batch, 64, 64, 1024), card).ns; };
  const double batched_ns = ns(10), single_ns = ns(1);
  card.gemm[Precision::fp32].batched_latency_cycles = 1000;
  EXPECT_DOUBLE_EQ(ns(10), 1000 + 1000 * 1024);
  EXPECT_GT(ns(10), 2 * batched_ns);
  EXPECT_DOUBLE_EQ(ns(1), single_ns);
}

TEST(GemmTime, ResultsAndSharesOfRatesHaveTheirOwnConstants) {
  CardRates card = paper_card();
  GemmConstants& c = card.gemm[Precision::fp32];
  c.efficiency = 0.5;
  EXPECT_DOUBLE_EQ(gemm_time(product(10, 128, 128, 1024), card).ns, 1000 + 2 * 1024);
  c.efficiency = 1;
  c.warm_inputs = c.warm_weights = 1e9;  // all in L2
  c.store_bytes_per_cycle = 1;
  EXPECT_DOUBLE_EQ(gemm_time(product(10, 128, 128, 64), card).ns, 1000 + 4 * 128 * 128);
  c.warm_inputs = c.warm_weights = 1e-9;
  card.dram_bytes_per_s = 1e9;
  c.dram_fraction = 0.5;
  EXPECT_DOUBLE_EQ(gemm_time(product(10, 128, 128, 64), card).ns, 1000 + 2 * 10 * 4 * (128 * 64 + 64 * 128 + 128 * 128));
}

// 11 x 128 columns on ten multiprocessors: tiles of 128 need two waves. Hopper's kernels have tiles of 160 columns: nine, one wave.
TEST(GemmTime, HopperHasTilesOfManyWidths) {
  CardRates card = paper_card();
  const Operation wide = product(1, 128, 11 * 128, 1024, Precision::bf16);
  card.gemm[Precision::bf16].edge = 0.2;
  card.gemm[Precision::bf16].least_part = 1e9;
  const double ampere_ns = gemm_time(wide, card).ns - 1000;
  card.capability = 90;
  EXPECT_NEAR(gemm_time(wide, card).ns - 1000, 1.25 * 1024 * (1 + 0.2 * (1 + 0.8 - 1.5)), 1e-6);
  EXPECT_GT(ampere_ns, 1.4 * (gemm_time(wide, card).ns - 1000));
  EXPECT_EQ(gemm_tiling(wide, card).tile_n, 160);
  card.capability = 120;  // GeForce cards have the older kernels
  EXPECT_DOUBLE_EQ(gemm_time(wide, card).ns - 1000, ampere_ns);
}

TEST(GemmTime, RowsThatAreNotAlignedAreSlower) {
  CardRates card = paper_card();
  const double peak = card.sustained_flop_per_s[Precision::bf16] / (card.multiprocessors * card.clock_hz);
  card.gemm[Precision::bf16].unaligned_flop_per_cycle = peak / 6;
  const auto ns = [&](int64_t n, int64_t k) { return gemm_time(product(1, 4096, n, k, Precision::bf16), card).ns; };
  EXPECT_NEAR(ns(4097, 4096), 6 * ns(4096, 4096), ns(4096, 4096));
  EXPECT_NEAR(ns(4096, 4095), 6 * ns(4096, 4096), ns(4096, 4096));
  EXPECT_NEAR(ns(4098, 4096), 3 * ns(4096, 4096), ns(4096, 4096));  // two elements at a time
  EXPECT_NEAR(ns(4100, 4096), 1.5 * ns(4096, 4096), 0.5 * ns(4096, 4096));
  EXPECT_NEAR(ns(4104, 4096), ns(4096, 4096), 0.2 * ns(4096, 4096));
}

TEST(GemmTime, TwiceTheWorkIsNeverFaster) {
  for (const char* name : {"t4", "a100-80", "h200", "b200", "l40s", "rtx4090", "p100-16-pcie", "l4"}) {
    CardRates card = card_rates(find_gpu(name));
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      card.gemm[precision].whole_products = 0;  // see SmallProductsKeepTheirKWhole: where k begins to be cut, more work is faster
      for (int64_t m = 1; m <= 16384; m *= 4) {
        for (int64_t n = 16; n <= 16384; n *= 4) {
          for (int64_t k = 64; k <= 16384; k *= 4) {
            const double one = operation_duration(product(1, m, n, k, precision), card).expected_ns;
            EXPECT_TRUE(std::isfinite(one) && one > 0);
            EXPECT_GE(operation_duration(product(1, 2 * m, n, k, precision), card).expected_ns, one * 0.97)
                << name << m << ' ' << n << ' ' << k;
            EXPECT_GE(operation_duration(product(1, m, 2 * n, k, precision), card).expected_ns, one * 0.97)
                << name << m << ' ' << n << ' ' << k;
            EXPECT_GE(operation_duration(product(1, m, n, 2 * k, precision), card).expected_ns, one * 0.97)
                << name << m << ' ' << n << ' ' << k;
          }
        }
      }
    }
  }
}

Operation attention(int64_t batch, int64_t length, bool causal, int64_t window = 0, Pass pass = Pass::forward) {
  Operation operation;
  operation.kind = OperationKind::attention;
  operation.precision = Precision::bf16;
  operation.element_bytes = 2;
  operation.attention = {pass, batch, 16, 16, length, length, 128, 128, causal, window};
  return operation;
}

TEST(GemmTime, NarrowBatchedProductsOnATuringCardAreNotFaster) {
  const auto times_as_long = [](const char* gpu) {
    const CardRates card = card_rates(find_gpu(gpu));
    return gemm_time(product(256, 512, 64, 512), card).ns / gemm_time(product(256, 512, 32, 512), card).ns;
  };
  EXPECT_LT(times_as_long("t4"), 1.1);
  EXPECT_GT(times_as_long("v100-32-pcie"), 1.2);
}

TEST(Duration, WindowsAndPrefillsHaveIntervalsOfTheirOwn) {
  CardRates card = paper_card();
  card.attention[Precision::bf16].l2_bytes_per_cycle = 1e30;
  card.interval[OperationKind::attention][Precision::bf16] = {0.75, 1.5};
  card.window_interval[Precision::bf16] = {0.5, 2};
  card.prefill_interval[Precision::bf16] = {0.25, 4};
  card.prefill_window_interval[Precision::bf16] = {0.125, 8};
  const auto bounds = [&](int64_t window, bool prefill = false) {
    Operation operation = attention(1, 4096, true, window);
    operation.attention.prefill = prefill;
    const Duration duration = operation_duration(operation, card);
    return std::pair(duration.low_ns / duration.expected_ns, duration.high_ns / duration.expected_ns);
  };
  EXPECT_EQ(bounds(0), std::pair(0.75, 1.5));
  EXPECT_EQ(bounds(256), std::pair(0.5, 2.0));
  EXPECT_EQ(bounds(0, true), std::pair(0.25, 4.0));
  EXPECT_EQ(bounds(256, true), std::pair(0.125, 8.0));
}

TEST(AttentionTime, BlocksOfQueriesWalkOverKeys) {
  CardRates card = paper_card();
  AttentionConstants& c = card.attention[Precision::bf16];
  card.launch_ns = 1000;
  c.l2_bytes_per_cycle = 1e30;
  // 16 heads x 128 queries are 16 blocks, two waves. A key needs 2 products of 128 x 128, so 2 ns.
  EXPECT_DOUBLE_EQ(attention_time(attention(1, 128, false), card).ns, 1000 + 2 * 2 * 128);
  // Causal: on average a block sees 512 of 1024 keys and half a block more; 128 blocks, 13 waves.
  EXPECT_DOUBLE_EQ(attention_time(attention(1, 1024, true), card).ns, 1000 + 13 * 2 * (512 + 64));
  c.efficiency = 0.5;
  EXPECT_DOUBLE_EQ(attention_time(attention(1, 128, false), card).ns, 1000 + 4 * 2 * 128);
  // Exponentials have their own units: 3 cycles of 1 ns for a key's 128 scores, independent of the products.
  c.softmax_cycles = 3;
  EXPECT_DOUBLE_EQ(attention_time(attention(1, 128, false), card).ns, 1000 + 2 * (4 + 3) * 128);
  Operation nothing = attention(1, 128, false);
  nothing.attention.queries = 0;
  EXPECT_EQ(attention_time(nothing, card).bound, Bound::launch);
}

// Rotating queries and keys and writing the cache move the same tensors in kernels of their own.
TEST(AttentionTime, APrefillHasMoreKernels) {
  CardRates card = paper_card();
  AttentionConstants& c = card.attention[Precision::bf16];
  card.launch_ns = 1000;
  card.dram_bytes_per_s = 1e9;
  c.l2_bytes_per_cycle = 1;
  c.width[HeadWidth::middle].cycles = 5000;
  c.width[HeadWidth::middle].passes = c.width[HeadWidth::middle].cache_passes = 2;
  Operation prefill = attention(1, 128, false);
  const double alone_ns = attention_time(prefill, card).ns - 1000;
  const double moved_bytes = 4.0 * 16 * 128 * 128 * 2;
  prefill.attention.prefill = true;
  EXPECT_NEAR(attention_time(prefill, card).ns, 5000 + alone_ns + 2 * moved_bytes, 1e-6);
}

TEST(AttentionTime, APrefillReadsPagesOnHopperAndHasACostForEachToken) {
  CardRates card = paper_card();
  card.capability = 90;
  AttentionConstants& c = card.attention[Precision::bf16];
  c.l2_bytes_per_cycle = 0.1;  // ten multiprocessors: a byte a ns
  card.l2_bytes = 1e12;
  Operation one_token = attention(1, 1, true);
  const double head_bytes = 2 * 128 * 2;  // keys and values, or queries and results
  EXPECT_DOUBLE_EQ(attention_time(one_token, card).ns, 16 * head_bytes + 16 * head_bytes);
  one_token.attention.prefill = true;
  EXPECT_DOUBLE_EQ(attention_time(one_token, card).ns, 16 * head_bytes + 16 * 64 * head_bytes);
  c.prefill_token_cycles = 7;
  EXPECT_DOUBLE_EQ(attention_time(one_token, card).ns, 16 * head_bytes + 16 * 64 * head_bytes + 7);
}

// One head of 1024 queries on ten multiprocessors has eight blocks at once; the last one sees all keys.
TEST(AttentionTime, TheLongestBlockIsTheLeast) {
  CardRates card = paper_card();
  AttentionConstants& c = card.attention[Precision::bf16];
  c.l2_bytes_per_cycle = 1e30;
  Operation one_head = attention(1, 1024, true);
  one_head.attention.heads = one_head.attention.kv_heads = 1;
  EXPECT_DOUBLE_EQ(attention_time(one_head, card).ns, 2 * 1024);
  c.width[HeadWidth::middle].alone = 0.75;
  EXPECT_DOUBLE_EQ(attention_time(one_head, card).ns, 2 * 768);
  // Eight blocks, in a window of 256: 128 and 256 keys, then 384 six times.
  one_head.attention.window = 256;
  EXPECT_DOUBLE_EQ(attention_time(one_head, card).ns, 2 * 352) << "336 is rounded up, and is more than 0.75 of a window and a block";
}

TEST(AttentionTime, AWindowChangesAPrefill) {
  CardRates card = paper_card();
  AttentionConstants& c = card.attention[Precision::bf16];
  c.l2_bytes_per_cycle = 1e30;
  HeadWidthConstants& width = c.width[HeadWidth::middle];
  width.cycles = 1000;
  Operation prefill = attention(10, 1024, true, 256);
  prefill.attention.prefill = true;
  const double blocks_ns = attention_time(prefill, card).ns - 1000;
  width.window_cycles = 0.5;
  EXPECT_DOUBLE_EQ(attention_time(prefill, card).ns, 500 + blocks_ns);
  width.window_efficiency = 0.5;
  EXPECT_DOUBLE_EQ(attention_time(prefill, card).ns, 500 + 2 * blocks_ns);
  width.window_outside = 1;  // as if there were no window
  EXPECT_NEAR(attention_time(prefill, card).ns - 500, 2 * blocks_ns * (512 + 64) / 352, 1e-6);
  prefill.attention.prefill = false;
  EXPECT_DOUBLE_EQ(attention_time(prefill, card).ns, blocks_ns) << "only a framework's";
}

// Four heads share keys and values, and 32 queries of each fill one block. Where no kernel does so, each head has a block that is mostly
// empty.
TEST(AttentionTime, KernelsPackHeadsThatShareKeys) {
  CardRates card = paper_card();
  AttentionConstants& c = card.attention[Precision::bf16];
  c.l2_bytes_per_cycle = 1e30;
  Operation shared = attention(10, 32, false);
  const double apart_ns = attention_time(shared, card).ns;
  c.width[HeadWidth::middle].packed = 1;
  EXPECT_DOUBLE_EQ(attention_time(shared, card).ns, apart_ns);
  shared.attention.kv_heads = 4;
  EXPECT_DOUBLE_EQ(attention_time(shared, card).ns, apart_ns / 4);
  c.width[HeadWidth::middle].packed = 0.5;
  EXPECT_DOUBLE_EQ(attention_time(shared, card).ns, apart_ns * (0.5 / 4 + 0.5));
  shared.attention.queries = 1;
  EXPECT_DOUBLE_EQ(attention_time(shared, card).ns, apart_ns / 4) << "a token after others";
  shared.attention.prefill = true;
  EXPECT_DOUBLE_EQ(attention_time(shared, card).ns, apart_ns * (0.5 / 4 + 0.5));
  c.packed_single = 1;
  EXPECT_DOUBLE_EQ(attention_time(shared, card).ns, apart_ns / 4);
}

// Few keys cost as much as a tile of them.
TEST(AttentionTime, TilesOfKeysAreSmallerWithLittleSharedMemory) {
  CardRates card = paper_card();
  card.attention[Precision::bf16].l2_bytes_per_cycle = 1e30;
  const auto ns = [&](int64_t length, int shared_kib) {
    card.occupancy.shared_bytes = shared_kib << 10;
    return attention_time(attention(10, length, false), card).ns;
  };
  EXPECT_DOUBLE_EQ(ns(1, 164), 16 * 2 * 64);
  EXPECT_DOUBLE_EQ(ns(64, 164), 16 * 2 * 64);
  EXPECT_DOUBLE_EQ(ns(1, 100), 16 * 32) << "blocks of 64 queries, a key takes half as long";
  EXPECT_DOUBLE_EQ(ns(128, 100), ns(128, 164)) << "two blocks";
}

TEST(AttentionTime, WidthsHaveTheirOwnShares) {
  CardRates card = paper_card();
  card.capability = 90;
  AttentionConstants& c = card.attention[Precision::bf16];
  c.l2_bytes_per_cycle = 1e30;
  c.width[HeadWidth::narrow].efficiency = 0.9, c.width[HeadWidth::wide].efficiency = 0.8;
  c.width[HeadWidth::wider].efficiency = 0.5, c.width[HeadWidth::widest].efficiency = 0.25;
  const auto ns = [&](int64_t width) {
    Operation wide = attention(10, 1024, false);
    wide.attention.head_dim = wide.attention.value_dim = width;
    return attention_time(wide, card).ns / (16.0 * 8 * 1024 * 2);
  };
  EXPECT_DOUBLE_EQ(ns(128), 1);
  EXPECT_NEAR(ns(64), 0.5 / 0.9, 1e-9);
  EXPECT_NEAR(ns(192), 1.5 / 0.8, 1e-9);
  EXPECT_NEAR(ns(256), 2 / 0.5, 1e-9);
  EXPECT_NEAR(ns(512), 4 / 0.25, 1e-9);
}

// Blocks have 64 queries instead of 128, and heads of 192 are computed like heads of 256.
TEST(AttentionTime, GeForceBlackwellHasAdasBlocks) {
  CardRates card = paper_card();
  card.attention[Precision::bf16].l2_bytes_per_cycle = 1e30;
  Operation wide = attention(10, 64, false);
  wide.attention.head_dim = wide.attention.value_dim = 192;
  const auto ns = [&](int capability) {
    card.capability = capability;
    return attention_time(wide, card).ns;
  };
  EXPECT_DOUBLE_EQ(ns(120), ns(89));
  EXPECT_DOUBLE_EQ(ns(100), ns(89) * 128 / 64 * 192 / 256);
}

TEST(AttentionTime, LessToSeeIsLessTime) {
  for (const char* name : {"a100-80", "h200", "rtx3090"}) {
    const CardRates card = card_rates(find_gpu(name));
    const auto ns = [&](const Operation& operation) { return operation_duration(operation, card).expected_ns; };
    EXPECT_LT(ns(attention(8, 4096, true)), 0.6 * ns(attention(8, 4096, false)));
    EXPECT_LT(ns(attention(8, 4096, true, 512)), 0.5 * ns(attention(8, 4096, true)));
    EXPECT_GT(ns(attention(8, 4096, true, 0, Pass::backward)), 2 * ns(attention(8, 4096, true)));
    EXPECT_NEAR(ns(attention(64, 4096, true)) / ns(attention(32, 4096, true)), 2, 0.05);
  }
}

TEST(Duration, IntervalAndIdeal) {
  const CardRates card = card_rates(find_gpu("a100-80"));
  Operation operation = product(1, 4096, 4096, 4096, Precision::bf16);
  operation.flops = 2.0 * 4096 * 4096 * 4096;
  operation.bytes_read = 2 * 2 * 4096 * 4096;
  operation.bytes_written = 2 * 4096 * 4096;
  const Duration duration = operation_duration(operation, card);
  EXPECT_LT(duration.low_ns, duration.expected_ns);
  EXPECT_GT(duration.high_ns, duration.expected_ns);
  EXPECT_NEAR(duration.ideal_ns, operation.flops / 312e12 * 1e9, 1);
  EXPECT_GT(duration.expected_ns, duration.ideal_ns);
  EXPECT_LT(duration.expected_ns, 1.6 * duration.ideal_ns);
}

}  // namespace
}  // namespace gpucast

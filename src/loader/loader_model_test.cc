#include "src/loader/loader_model.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

constexpr double kMs = 1e6;

LoaderRun run(int64_t workers, double period_ms, double cpu_ms) {
  LoaderRun out;
  out.workers = workers;
  out.batches = 100;
  out.period_ns = period_ms * kMs;
  out.fetch_ns = period_ms * kMs * static_cast<double>(std::max<int64_t>(1, workers));
  out.cpu_ns = cpu_ms * kMs;
  out.main_cpu_ns = workers > 0 ? 1 * kMs : 0;
  out.fetches_ns = {out.fetch_ns, out.fetch_ns, out.fetch_ns, out.fetch_ns};
  return out;
}

LoaderRecord record(std::vector<LoaderRun> runs, double cores = 8) {
  LoaderRecord out;
  out.kind = LoaderKind::dataloader;
  out.cores = cores;
  out.prefetch_factor = 2;
  out.runs = std::move(runs);
  return out;
}

TEST(LoaderModel, MeasuredTimesAreReproduced) {
  const auto model = loader_model(record({run(0, 90, 90), run(1, 100, 100), run(2, 51, 100)}), {}, {}, loader_constants());
  ASSERT_TRUE(model);
  EXPECT_TRUE(model->measured);
  EXPECT_NEAR(model->inline_batch.expected_ns, 90 * kMs, 0.1 * kMs);
  EXPECT_NEAR(model->batch(1, 0).time.expected_ns, 100 * kMs, 2 * kMs);
  EXPECT_NEAR(model->batch(2, 0).time.expected_ns, 51 * kMs, 1.5 * kMs);
  EXPECT_NEAR(model->batch(4, 0).time.expected_ns, 26 * kMs, 2 * kMs);
  EXPECT_EQ(model->batch(4, 0).limit, LoaderLimit::workers);
}

// Other programs had both cores most of the time. The batch's CPU time is the least that remains.
TEST(LoaderModel, WaitingForACpuIsSubtracted) {
  LoaderRun busy = run(0, 900, 100);
  busy.main_cpu_ns = 100 * kMs;
  busy.queue_ns = 780 * kMs;
  EXPECT_NEAR(loader_model(record({busy}), {}, {}, loader_constants())->inline_batch.expected_ns, 120 * kMs, kMs);
  busy.queue_ns = 850 * kMs;
  EXPECT_NEAR(loader_model(record({busy}), {}, {}, loader_constants())->inline_batch.expected_ns, 100 * kMs, kMs);
}

TEST(LoaderModel, CoresBoundTheRate) {
  const auto model = loader_model(record({run(0, 90, 90), run(1, 100, 100)}, 2), {}, {}, loader_constants());
  // 101 ms of CPU time a batch on two cores, and 20 ms in the training process.
  EXPECT_NEAR(model->batch(8, 0).time.expected_ns, 50.5 * kMs, 0.1 * kMs);
  EXPECT_NEAR(model->batch(8, 20 * kMs).time.expected_ns, 60.5 * kMs, 0.1 * kMs);
  EXPECT_EQ(model->batch(8, 0).limit, LoaderLimit::cores);
  LoaderHost large;
  large.cores = 64;
  EXPECT_LT(loader_model(record({run(0, 90, 90), run(1, 100, 100)}, 2), {}, large, loader_constants())->batch(8, 0).time.expected_ns,
            20 * kMs);
}

// Two workers at once used less CPU time for a batch than one alone.
TEST(LoaderModel, FullCoresUseTheCpuTimeOfSeveralWorkers) {
  const auto model = loader_model(record({run(0, 90, 90), run(1, 100, 100), run(2, 45, 80)}, 2), {}, {}, loader_constants());
  EXPECT_NEAR(model->batch(8, 0).time.expected_ns, 40.5 * kMs, 0.1 * kMs);
  EXPECT_EQ(model->batch(8, 0).limit, LoaderLimit::cores);
}

TEST(LoaderModel, ThePinningThreadGetsBatches) {
  LoaderRecord pinned = record({run(0, 10, 10), run(1, 10, 10)}, 2);
  pinned.pin_memory = true;
  pinned.pin_ns = 3 * kMs;
  const auto model = loader_model(pinned, {}, {}, loader_constants());
  EXPECT_NEAR(model->take_ns, 0.2 * kMs, 1);
  EXPECT_NEAR(model->pin_ns, 3.8 * kMs, 1);
  pinned.cores = 64;
  EXPECT_NEAR(loader_model(pinned, {}, {}, loader_constants())->batch(64, 0).time.expected_ns, 3.8 * kMs, 0.1 * kMs)
      << "one thread, whatever there is of cores";
}

TEST(LoaderModel, WorkersThatWaitNeedNoCore) {
  const auto model = loader_model(record({run(0, 100, 5), run(1, 101, 5)}, 1), {}, {}, loader_constants());
  EXPECT_NEAR(model->batch(8, 0).time.expected_ns, 14 * kMs, 3 * kMs);
  LoaderHost fast;
  fast.cpu_speed = 10;
  EXPECT_GT(loader_model(record({run(0, 100, 5)}), {}, fast, loader_constants())->inline_batch.expected_ns, 95 * kMs)
      << "a sleep is no shorter there";
  EXPECT_NEAR(loader_model(record({run(0, 100, 100)}), {}, fast, loader_constants())->inline_batch.expected_ns, 10 * kMs, 0.1 * kMs);
}

TEST(LoaderModel, OtherProgramsAreTakenOff) {
  LoaderRun disturbed = run(1, 140, 100);
  disturbed.queue_ns = 40 * kMs;
  disturbed.others_cores = 1;
  LoaderRun full = run(2, 101, 100);  // one core was free: 100 + 1 ms
  full.others_cores = 1;
  const auto model = loader_model(record({disturbed, full}, 2), {}, {}, loader_constants());
  EXPECT_NEAR(model->batch(1, 0).time.expected_ns, 100 * kMs, 3 * kMs);
  EXPECT_NEAR(model->batch(2, 0).time.expected_ns, 51 * kMs, 2 * kMs);
}

TEST(LoaderModel, StorageIsAddedToReadsFromMemory) {
  LoaderRun alone = run(0, 50, 50), one = run(1, 50, 50);
  for (LoaderRun* each : {&alone, &one}) {
    each->read_known = true;
    each->read_bytes = 10e6;
    each->files = 10;
  }
  LoaderHost slow;
  slow.storage = find_storage("100MB/s");
  const auto model = loader_model(record({alone, one}), {}, slow, loader_constants());
  EXPECT_NEAR(model->inline_batch.expected_ns, 150 * kMs, 1 * kMs);
  EXPECT_NEAR(model->batch(1, 0).time.expected_ns, 150 * kMs, 4 * kMs);
  EXPECT_NEAR(model->batch(16, 0).time.expected_ns, 100 * kMs, 0.1 * kMs) << "all share one disk";
  EXPECT_EQ(model->batch(16, 0).limit, LoaderLimit::storage);
  // The time waited for this machine's disk is not added to the other disk's time.
  LoaderRun cold = run(0, 150, 50);
  cold.read_known = true;
  cold.read_bytes = cold.device_bytes = 10e6;
  EXPECT_NEAR(loader_model(record({cold}), {}, slow, loader_constants())->inline_batch.expected_ns, 150 * kMs, 1 * kMs);
}

TEST(LoaderModel, OneMeasurementOrTheLoopAloneIsLessCertain) {
  const auto both = loader_model(record({run(0, 90, 90), run(1, 97, 97)}), {}, {}, loader_constants());
  const auto loop = loader_model(record({}), {90 * kMs, 90 * kMs}, {}, loader_constants());
  ASSERT_TRUE(loop);
  EXPECT_FALSE(loop->measured);
  const TimeRange sure = both->batch(4, 0).time, unsure = loop->batch(4, 0).time;
  EXPECT_NEAR(unsure.expected_ns / sure.expected_ns, 1, 0.05);
  EXPECT_GT(unsure.high_ns - unsure.low_ns, 1.5 * (sure.high_ns - sure.low_ns));
  EXPECT_FALSE(loader_model(record({}), {}, {}, loader_constants()));
  LoaderRecord none;
  none.kind = LoaderKind::dali;
  EXPECT_FALSE(loader_model(none, {90 * kMs, 90 * kMs}, {}, loader_constants()));
}

}  // namespace
}  // namespace gpucast

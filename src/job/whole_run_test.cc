#include "gpucast/whole_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpucast/error.h"

namespace gpucast {
namespace {

constexpr TimeRange kStep{.low_ns = 8, .expected_ns = 10, .high_ns = 15};

std::string times(double from, double every, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format("{}{}", i > 0 ? "," : "", from + every * i);
  return out;
}

std::string pass(const std::string& data, int length, int parent, int parent_batch, int steps, double begin_ns, double end_ns,
                 const std::string& fetched, bool cut) {
  return fmt::format(R"({{"dataset":"{}","length":{},"batch_size":1,"again":false,"parent":{},"parent_batch":{},"steps":{},)"
                     R"("begin_ns":{},"end_ns":{},"fetched_ns":[{}],"cut":{}}})",
                     data, length, parent, parent_batch, steps, begin_ns, end_ns, fetched, cut);
}

std::string record(const std::string& passes, const std::string& steps, const std::string& end = "script_end", double end_ns = 1000,
                   const std::string& saves = "") {
  return fmt::format(R"({{"end":"{}","end_ns":{},"passes":[{}],"steps_ns":[{}],"saves":[{}]}})", end, end_ns, passes, steps, saves);
}

double part(const WholeRun& run, const std::string& name, bool count = false) {
  for (const RunPart& one : run.parts)
    if (one.name == name) return count ? one.count : one.ns;
  return 0;
}

// Training: 20 of 100 batches, a step each. Evaluation: 4 batches of 7 ns, the first after 1 ns.
std::string one_epoch(const std::string& end = "script_end") {
  return record(pass("train", 100, -1, 0, 20, 100, 320, times(110, 10, 20), true) + "," +
                    pass("test", 4, -1, 0, 0, 320, 349, times(321, 7, 4), false),
                times(120, 10, 20), end, 400);
}

TEST(WholeRun, APassThatWasCutCountsWhole) {
  const WholeRun run = whole_run(one_epoch(), kStep, {});
  EXPECT_DOUBLE_EQ(run.steps, 100);
  EXPECT_DOUBLE_EQ(part(run, "start"), 100);
  EXPECT_DOUBLE_EQ(part(run, "training"), 1000);
  EXPECT_DOUBLE_EQ(part(run, "evaluation"), 28);
  EXPECT_DOUBLE_EQ(part(run, "loader starts"), 10 + 1);
  EXPECT_DOUBLE_EQ(part(run, "other"), 400 - 349);
  EXPECT_TRUE(run.complete);
  EXPECT_NEAR(run.wall.high_ns - run.wall.expected_ns, (1000 + 28) * 0.5, 1e-3);
}

TEST(WholeRun, TheUsersEpochsAndStepsScaleWhatComesAgain) {
  const WholeRun epochs = whole_run(one_epoch(), kStep, {.epochs = 5});
  EXPECT_DOUBLE_EQ(epochs.steps, 500);
  EXPECT_DOUBLE_EQ(part(epochs, "evaluation"), 5 * 28);
  EXPECT_DOUBLE_EQ(part(epochs, "start"), 100);
  const WholeRun steps = whole_run(one_epoch(), kStep, {.steps = 50});
  EXPECT_DOUBLE_EQ(steps.passes, 0.5);
  EXPECT_DOUBLE_EQ(part(steps, "evaluation"), 14);
}

TEST(WholeRun, EvaluationsInsideAPassComeAgainAtTheirPeriod) {
  // After batches 5 and 10 of 12; the pass has 100.
  const std::string passes = pass("train", 100, -1, 0, 12, 0, 200, times(10, 15, 12), true) + "," +
                             pass("test", 2, 0, 5, 0, 80, 90, times(81, 4, 2), false) + "," +
                             pass("test", 2, 0, 10, 0, 160, 170, times(161, 4, 2), false);
  const WholeRun run = whole_run(record(passes, times(20, 15, 12)), kStep, {});
  EXPECT_DOUBLE_EQ(part(run, "evaluation", true), 20 * 2);
  EXPECT_DOUBLE_EQ(run.steps, 100);
}

TEST(WholeRun, ALaterPassIsAsLongAsTheFirstOfItsKind) {
  const std::string passes = pass("train", 100, -1, 0, 20, 100, 320, times(110, 10, 20), true) + "," +
                             pass("train", 100, -1, 0, 3, 400, 440, times(405, 10, 3), true);
  const WholeRun run = whole_run(record(passes, times(120, 10, 23)), kStep, {});
  EXPECT_DOUBLE_EQ(run.steps, 200);
  EXPECT_DOUBLE_EQ(run.passes, 2);
  EXPECT_DOUBLE_EQ(part(run, "loader starts"), 10 + 5);
}

TEST(WholeRun, ARunThatWasEndedLeavesOutItsLastPass) {
  const std::string passes = pass("train", 10, -1, 0, 10, 100, 200, times(100, 10, 10), false) + "," +
                             pass("test", 4, -1, 0, 0, 200, 228, times(200, 7, 4), false) + "," +
                             pass("train", 10, -1, 0, 10, 300, 400, times(300, 10, 10), false);
  const WholeRun run = whole_run(record(passes, times(110, 10, 20), "enough"), kStep, {.epochs = 4});
  EXPECT_DOUBLE_EQ(run.steps, 40);
  EXPECT_DOUBLE_EQ(part(run, "evaluation"), 4 * 28);
  EXPECT_DOUBLE_EQ(part(run, "other"), 4 * 72);
  EXPECT_FALSE(whole_run(record(passes, times(110, 10, 20), "enough"), kStep, {}).complete);
}

TEST(WholeRun, WithoutALoaderALongStepHasOtherWorkInIt) {
  std::string steps;
  double at = 0;
  for (int i = 1; i <= 40; ++i) steps += fmt::format("{}{}", i > 1 ? "," : "", at += i % 10 == 0 ? 60 : 10);
  const WholeRun run = whole_run(record("", steps, "script_end", at), kStep, {.steps = 400});
  EXPECT_DOUBLE_EQ(part(run, "training"), 4000);
  EXPECT_DOUBLE_EQ(part(run, "evaluation", true), 40);
  EXPECT_DOUBLE_EQ(part(run, "evaluation"), 40 * 50);
  EXPECT_THROW(whole_run(record("", steps), kStep, {.epochs = 2}), Error);
}

TEST(WholeRun, CheckpointsCountWithAnAssumedDisk) {
  const std::string passes = pass("train", 100, -1, 0, 20, 100, 320, times(110, 10, 20), true);
  const WholeRun run = whole_run(record(passes, times(120, 10, 20), "script_end", 500, "[2000, -1, 20]"), kStep, {.epochs = 3});
  EXPECT_DOUBLE_EQ(part(run, "checkpoints", true), 3);
  EXPECT_DOUBLE_EQ(part(run, "checkpoints"), 3 * 2000);
  ASSERT_EQ(run.notes.size(), 1U);
  // Inside of a pass that was cut after 20 of 100 batches: after 8 and 16.
  const WholeRun inside = whole_run(record(passes, times(120, 10, 20), "script_end", 500, "[100, 0, 8], [100, 0, 16]"), kStep, {});
  EXPECT_DOUBLE_EQ(part(inside, "checkpoints", true), 12);
}

TEST(WholeRun, EnergyIsThatOfTheWorkingAndOfTheIdleCard) {
  const WholeRun run = whole_run(one_epoch(), kStep, {});
  CardPower power;
  power.power = {.low_w = 200e9, .expected_w = 300e9, .high_w = 400e9};
  power.idle_power_w = 50e9;
  const double working = 1000 + 28, idle = run.wall.expected_ns - working;
  const EnergyRange energy = run_energy(run, power);
  EXPECT_DOUBLE_EQ(energy.expected_j, working * 300 + idle * 50);
  EXPECT_DOUBLE_EQ(energy.low_j, working * 200 + idle * 50);
}

TEST(WholeRun, ARecordWithoutStepsIsAnError) {
  EXPECT_THROW(whole_run(record("", ""), kStep, {}), Error);
  EXPECT_THROW(whole_run("{", kStep, {}), Error);
}

}  // namespace
}  // namespace gpucast

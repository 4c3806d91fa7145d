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

// What a pass may have, too.
struct More {
  std::string step_batches = "";
  int call = 0;
  double times = 1;
};

std::string pass(const std::string& data, int length, int parent, int parent_batch, int steps, double begin_ns, double end_ns,
                 const std::string& fetched, bool cut, const More& more = {}) {
  return fmt::format(R"({{"dataset":"{}","length":{},"batch_size":1,"again":false,"parent":{},"parent_batch":{},"steps":{},)"
                     R"("begin_ns":{},"end_ns":{},"fetched_ns":[{}],"cut":{},"step_batches":[{}],"call":{},"times":{}}})",
                     data, length, parent, parent_batch, steps, begin_ns, end_ns, fetched, cut, more.step_batches, more.call, more.times);
}

std::string record(const std::string& passes, const std::string& steps, const std::string& end = "script_end", double end_ns = 1000,
                   const std::string& saves = "", const std::string& schedule = "") {
  return fmt::format(R"({{"end":"{}","end_ns":{},"passes":[{}],"steps_ns":[{}],"saves":[{}],"schedule":{{{}}},)"
                     R"("exception":"ValueError: no"}})",
                     end, end_ns, passes, steps, saves, schedule);
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

TEST(WholeRun, EvaluationsByAllStepsComeAgainAtTheirPeriod) {
  // Before the steps 0, 50, 100 of all; passes of 130 batches, the second one cut before its evaluation.
  const auto passes = [](const std::string& at_first) {
    return pass("train", 130, -1, 0, 130, 0, 2000, times(10, 10, 130), false) + "," +
           pass("test", 2, 0, 1, 0, 20, 30, times(21, 4, 2), false) + "," + pass("test", 2, 0, 51, 0, 520, 530, times(521, 4, 2), false) +
           "," + pass("test", 2, 0, 101, 0, 1020, 1030, times(1021, 4, 2), false) + "," +
           pass("train", 130, -1, 0, 3, 2000, 2030, times(2000, 10, 3), true) + at_first;
  };
  const WholeRun by_all = whole_run(record(passes(""), times(20, 15, 133)), kStep, {});
  EXPECT_DOUBLE_EQ(part(by_all, "evaluation", true), (3 + 130 / 50.0) * 2);
  const std::string again = "," + pass("test", 2, 4, 1, 0, 2005, 2008, times(2006, 1, 2), false);
  EXPECT_DOUBLE_EQ(part(whole_run(record(passes(again), times(20, 15, 133)), kStep, {}), "evaluation", true), (3 + 3) * 2);
}

TEST(WholeRun, WorkNextToAnInnerEvaluationIsPartOfIt) {
  // After batches 5 and 10 of 12: 10 ns of batches, then 500 ns more until the next batch of training.
  const std::string passes =
      pass("train", 100, -1, 0, 12, 0, 2000, times(10, 15, 5) + "," + times(595, 15, 5) + "," + times(1180, 15, 2), true) + "," +
      pass("test", 2, 0, 5, 0, 75, 85, times(76, 4, 2), false) + "," + pass("test", 2, 0, 10, 0, 660, 670, times(661, 4, 2), false);
  const WholeRun run = whole_run(record(passes, times(20, 15, 12)), kStep, {});
  const double evaluation = part(run, "evaluation");
  EXPECT_NEAR(evaluation, 20 * (500 + 9), 20);
}

TEST(WholeRun, OneEvaluationAtTheBeginningHappensOnce) {
  const std::string passes =
      pass("train", 100, -1, 0, 12, 0, 200, times(10, 15, 12), true) + "," + pass("test", 2, 0, 1, 0, 20, 25, times(21, 2, 2), false);
  EXPECT_DOUBLE_EQ(part(whole_run(record(passes, times(20, 15, 12)), kStep, {}), "evaluation", true), 2);
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
  const WholeRun run = whole_run(record(passes, times(120, 10, 20), "script_end", 500, "[2000, -1, 20, 0]"), kStep, {.epochs = 3});
  EXPECT_DOUBLE_EQ(part(run, "checkpoints", true), 3);
  EXPECT_DOUBLE_EQ(part(run, "checkpoints"), 3 * 2000);
  ASSERT_EQ(run.notes.size(), 1U);
  // Inside of a pass that was cut after 20 of 100 batches: after 8 and 16.
  const WholeRun inside = whole_run(record(passes, times(120, 10, 20), "script_end", 500, "[100, 0, 8, 0], [100, 0, 16, 0]"), kStep, {});
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

TEST(WholeRun, WhatComesBeforeTheFirstEpochHappensOnce) {
  const std::string passes = pass("test", 4, -1, 0, 0, 100, 128, times(100, 7, 4), false) + "," +
                             pass("train", 10, -1, 0, 10, 150, 250, times(150, 10, 10), false) + "," +
                             pass("test", 4, -1, 0, 0, 250, 278, times(250, 7, 4), false) + "," +
                             pass("train", 10, -1, 0, 10, 300, 400, times(300, 10, 10), false) + "," +
                             pass("test", 4, -1, 0, 0, 400, 428, times(400, 7, 4), false);
  const WholeRun run = whole_run(record(passes, times(160, 10, 20), "script_end", 428, "[50, -1, 0, 0]"), kStep, {.epochs = 200});
  EXPECT_DOUBLE_EQ(part(run, "evaluation", true), 4 + 200 * 4);
  EXPECT_DOUBLE_EQ(part(run, "other"), 22 + 100 * 22);
  EXPECT_DOUBLE_EQ(part(run, "checkpoints", true), 1);
  EXPECT_DOUBLE_EQ(run.steps, 2000);
}

TEST(WholeRun, AnEvaluationAfterAllEpochsHappensOnce) {
  std::string passes;
  for (int epoch = 0; epoch < 3; ++epoch)
    passes += pass("train", 10, -1, 0, 10, 100 + epoch * 200, 200 + epoch * 200, times(100 + epoch * 200, 10, 10), false) + "," +
              pass("validation", 4, -1, 0, 0, 200 + epoch * 200, 228 + epoch * 200, times(200 + epoch * 200, 7, 4), false) + ",";
  passes += pass("validation", 4, -1, 0, 0, 630, 658, times(630, 7, 4), false) + "," +
            pass("test", 100, -1, 0, 0, 660, 1360, times(660, 7, 100), false);
  const WholeRun run = whole_run(record(passes, times(110, 10, 30), "script_end", 1360), kStep, {.epochs = 30});
  EXPECT_DOUBLE_EQ(part(run, "evaluation", true), 30 * 4 + 4 + 100);
}

TEST(WholeRun, AStepOfSeveralBatches) {
  // A step after each 8 of 481 batches; the pass was cut after 29, and the script steps at the end of a pass or not.
  const auto steps_of = [](const std::string& at, int steps) {
    return whole_run(
               record(pass("train", 481, -1, 0, steps, 100, 400, times(110, 10, 29), true, {.step_batches = at}), times(190, 80, steps)),
               kStep, {})
        .steps;
  };
  EXPECT_DOUBLE_EQ(steps_of("8,16,24", 3), 60);
  EXPECT_DOUBLE_EQ(steps_of("9,17,25", 3), 60);
  EXPECT_DOUBLE_EQ(steps_of("8,16,24,29", 4), 61);
  EXPECT_DOUBLE_EQ(steps_of("8", 1), 60);
}

TEST(WholeRun, AStepsBatchesMayGoOnInTheNextPass) {
  const std::string passes = pass("train", 1900, -1, 0, 2, 100, 320, times(110, 10, 20), true, {.step_batches = "8,16"}) + "," +
                             pass("train", 1900, -1, 0, 1, 400, 450, times(405, 10, 5), true, {.step_batches = "4"});
  EXPECT_DOUBLE_EQ(whole_run(record(passes, times(190, 80, 3)), kStep, {}).steps, 475);
}

TEST(WholeRun, ATrainersScheduleCounts) {
  // 20 of 250 batches; the Trainer evaluates and saves by its steps, once in the run.
  const std::string passes = pass("train", 250, -1, 0, 20, 100, 320, times(110, 10, 20), true) + "," +
                             pass("test", 4, -1, 0, 0, 330, 358, times(330, 7, 4), false, {.call = 1}) + "," +
                             pass("train", 250, -1, 0, 3, 400, 440, times(405, 10, 3), true) + "," +
                             pass("test", 4, -1, 0, 0, 450, 478, times(450, 7, 4), false);
  const std::string saves = "[100, -1, 20, 1], [70, -1, 23, 0]", schedule = R"("steps":500,"evaluations":15,"saves":12)";
  const WholeRun run = whole_run(record(passes, times(120, 10, 23), "script_end", 500, saves, schedule), kStep, {});
  EXPECT_DOUBLE_EQ(run.steps, 500);
  EXPECT_DOUBLE_EQ(part(run, "evaluation", true), 15 * 4 + 4);
  EXPECT_DOUBLE_EQ(part(run, "checkpoints", true), 12 + 1);
  EXPECT_DOUBLE_EQ(part(run, "checkpoints"), 12 * 100 + 70);
  const WholeRun ended = whole_run(record(passes, times(120, 10, 23), "enough", 500, saves, schedule), kStep, {});
  EXPECT_TRUE(ended.complete);
  EXPECT_DOUBLE_EQ(ended.steps, 500);
}

TEST(WholeRun, AValidationStandsForSeveral) {
  const std::string passes = pass("train", 100, -1, 0, 20, 100, 320, times(110, 10, 20), true) + "," +
                             pass("test", 4, -1, 0, 0, 330, 358, times(330, 7, 4), false, {.times = 4});
  EXPECT_DOUBLE_EQ(part(whole_run(record(passes, times(120, 10, 20)), kStep, {}), "evaluation", true), 4 * 4);
}

TEST(WholeRun, AnEvaluationBetweenTheFirstStepsIsNoSlowStep) {
  const std::string passes = pass("train", 10, -1, 0, 10, 100, 300, times(100, 10, 1) + "," + times(210, 10, 9), false) + "," +
                             pass("test", 2, 0, 1, 0, 110, 210, times(110, 50, 2), false);
  const WholeRun run = whole_run(record(passes, "110," + times(220, 10, 9), "script_end", 300), kStep, {});
  EXPECT_DOUBLE_EQ(part(run, "first steps"), 0.62e9);
}

TEST(WholeRun, AnExceptionIsAnError) {
  try {
    whole_run(record(pass("train", 10, -1, 0, 3, 100, 130, times(100, 10, 3), false), times(110, 10, 3), "exception"), kStep, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "on the card's clock the script raised ValueError: no, after 3 optimizer steps");
  }
}

TEST(WholeRun, ARecordWithoutStepsIsAnError) {
  EXPECT_THROW(whole_run(record("", ""), kStep, {}), Error);
  EXPECT_THROW(whole_run("{", kStep, {}), Error);
}

}  // namespace
}  // namespace gpucast

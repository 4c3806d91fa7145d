#include "gpucast/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "gpucast/error.h"
#include "src/predict/facts.h"
#include "src/work/test_step.h"

namespace gpucast {
namespace {

TEST(StepTimes, TheHostsTimeBoundsSmallSteps) {
  const std::shared_ptr<const Facts> facts = follow(trace_of(kLines));
  StepTimeOptions options;
  options.gpus = {find_gpu("a100-80"), find_gpu("rtx3060")};
  const StepTimes times = step_times(*facts, options);
  ASSERT_EQ(times.cards.size(), 2u);
  EXPECT_EQ(times.cards[0].bound, StepBound::host);
  EXPECT_GT(times.cards[0].step.expected_ns, times.cards[0].gpu_ns);
  EXPECT_NEAR(times.coverage, 0.8, 1e-9);
  options.cpu_speed = 2;
  EXPECT_LT(step_times(*facts, options).cards[0].step.expected_ns, times.cards[0].step.expected_ns);
  options.cpu_speed = 0;
  EXPECT_THROW(step_times(*facts, options), Error);
}

// Cards with the same kernels have all of a known time's error, others a share of it.
TEST(StepTimes, AKnownTimeCorrectsOthers) {
  const std::shared_ptr<const Facts> facts = follow(trace_of(kLines));
  StepTimeOptions options;
  options.gpus = {find_gpu("a100-80"), find_gpu("a100-40"), find_gpu("rtx3060")};
  const StepTimes plain = step_times(*facts, options);
  options.known_gpu = "a100-80";
  options.known_step_ns = 4 * plain.cards[0].step.expected_ns;
  const StepTimes known = step_times(*facts, options);
  EXPECT_DOUBLE_EQ(known.cards[0].step.expected_ns, options.known_step_ns);
  EXPECT_NEAR(known.cards[1].step.expected_ns / plain.cards[1].step.expected_ns, 4, 1e-9);
  EXPECT_NEAR(known.cards[2].step.expected_ns / plain.cards[2].step.expected_ns, std::pow(4, 0.72), 1e-9);
}

}  // namespace
}  // namespace gpucast

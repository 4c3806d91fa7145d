#include "gpucast/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

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

TEST(StepTimes, UnknownOperatorsAreCounted) {
  std::vector<std::string> lines = kLines;
  for (std::string& line : lines)
    if (const size_t name = line.find("aten::relu"); name != std::string::npos) line.replace(name, 10, "mine::warp");
  StepTimeOptions options;
  options.gpus = {find_gpu("a100-80")};
  const StepTimes times = step_times(*follow(trace_of(lines)), options);
  const CardTime& card = times.cards[0];
  ASSERT_EQ(card.unknown_operators.size(), 1u);
  EXPECT_EQ(card.unknown_operators[0].name, "mine::warp");
  EXPECT_EQ(card.unknown_operators[0].launches, 1);
  EXPECT_GT(card.unknown_operators[0].share, 0.01);
  EXPECT_LT(card.unknown_operators[0].share, card.unknown_share) << "with the kernel of no operator";
  EXPECT_NE(step_times_json(times).find("\"unknown_operators\": [\n    {\n      \"name\": \"mine::warp\""), std::string::npos);
  EXPECT_TRUE(step_times(*follow(trace_of(kLines)), options).cards[0].unknown_operators.empty());
}

// Cards with the same kernels are corrected by the known step's whole error, others by a part of it.
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
  const auto width = [](const CardTime& card) { return std::log(card.step.high_ns / card.step.low_ns); };
  EXPECT_NEAR(width(known.cards[2]), width(plain.cards[2]) * step_constants().known_width, 1e-9) << "the laboratory is known";
}

}  // namespace
}  // namespace gpucast

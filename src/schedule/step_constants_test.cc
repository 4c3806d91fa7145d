#include "src/schedule/step_constants.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"
#include "gpucast/step_time.h"
#include "src/predict/facts.h"
#include "src/work/test_step.h"

namespace gpucast {
namespace {

TEST(StepConstants, AUsersFileReplacesBuiltInNumbers) {
  const StepConstants changed = read_step_constants(R"({"schema_version": 1, "step": {"host": {"call_ns": 9000, "source": "mine"}}})");
  EXPECT_EQ(changed.call_ns, 9000);
  EXPECT_EQ(changed.latency_ns, step_constants().latency_ns);
  EXPECT_THROW(read_step_constants(R"({"schema_version": 1, "step": {"host": {"call_ns": 9000}}})"), Error) << "no source";
  EXPECT_THROW(read_step_constants(R"({"schema_version": 1, "step": {"host": {"cal_ns": 9000, "source": "mine"}}})"), Error);
}

// Each group changes the figure that it belongs to.
TEST(StepConstants, MoveTheResult) {
  const auto facts = follow(trace_of(kLines));
  StepTimeOptions options;
  options.gpus = {find_gpu("a100-80"), find_gpu("rtx3060")};
  const auto with = [&](const std::string& groups) {
    options.constants_json = groups.empty() ? "" : "{\"schema_version\": 1, \"step\": {" + groups + "}}";
    return step_times(*facts, options);
  };
  const StepTimes plain = with("");
  EXPECT_GT(with(R"("host": {"call_ns": 250000, "source": "x"})").cards[0].host_ns, plain.cards[0].host_ns);
  EXPECT_GT(with(R"("observing": {"mark_ns": 1000, "source": "x"})").cards[0].host_ns, plain.cards[0].host_ns);
  options.known_gpu = "a100-80";
  options.known_step_ns = 4 * plain.cards[0].step.expected_ns;
  EXPECT_LT(with(R"("known": {"share": 0.1, "source": "x"})").cards[1].step.expected_ns, with("").cards[1].step.expected_ns);
}

}  // namespace
}  // namespace gpucast

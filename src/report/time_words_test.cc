#include "src/report/time_words.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

TEST(TimeWords, AHostBoundStepSaysHowMuchFasterAnotherHostIs) {
  StepTimes times;
  times.server_speed = 2;
  CardTime card;
  card.bound = StepBound::host;
  EXPECT_EQ(host_words(times, card), "on this machine; the host of an A100 is about 2.0 times as fast: --cpu-speed 2.0");
  card.bound = StepBound::gpu;
  EXPECT_EQ(host_words(times, card), "");
  card.bound = StepBound::host;
  times.server_speed = 0;
  EXPECT_EQ(host_words(times, card), "") << "older captures do not say";
}

TEST(TimeWords, StepsThatDisagreeSaySo) {
  StepTimes times;
  EXPECT_EQ(host_steps_words(times), "");
  times.host_steps = HostSteps{8, 10e6, 11e6};
  EXPECT_EQ(host_steps_words(times), "");
  times.host_steps->middle_ns = 15e6;
  EXPECT_EQ(host_steps_words(times),
            "the host's time differs: 10.0 ms for the quickest parts of 8 steps, 15.0 ms in the median; the quickest count");
}

}  // namespace
}  // namespace gpucast

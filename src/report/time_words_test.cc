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

}  // namespace
}  // namespace gpucast

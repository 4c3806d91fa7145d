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

TEST(TimeWords, PowerIsAnEstimateWithAnInterval) {
  CardTime card;
  EXPECT_EQ(power_words(card), "") << "the card's limit is not known";
  card.power = CardPower{.use = {}, .power = {480.2, 569.6, 650}, .energy = {15, 18.31, 22}};
  EXPECT_EQ(power_words(card), "power: about 570 W (480 to 650), 18.3 J a step, estimated");
  card.count = 8;
  EXPECT_EQ(power_words(card), "power: about 570 W (480 to 650), 18.3 J a step for each of 8 cards, estimated");
  EXPECT_EQ(energy_text(0.256), "0.26 J");
  EXPECT_EQ(energy_text(1834), "1834 J");
  EXPECT_EQ(energy_text(23456), "23.5 kJ");
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

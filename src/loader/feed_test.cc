#include "src/loader/feed.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

TEST(Feed, AStepIsTheSlowerOfBoth) {
  EXPECT_NEAR(mean_step_ns(100, 2, 2, 30, {}), 100, 0.01);
  EXPECT_NEAR(mean_step_ns(100, 2, 2, 300, {}), 300, 0.2);
  EXPECT_NEAR(mean_step_ns(100, 1, 1, 100, {}), 100, 0.01) << "the loop requests the next batch when it gets one, before it works";
  EXPECT_NEAR(mean_step_ns(0, 3, 2, 50, {}), 50, 0.1);
}

// Every tenth batch needs long: a deep queue covers that time, a short one does not.
TEST(Feed, PrefetchBridgesSlowBatches) {
  std::vector<double> variation(10, 0.5);
  variation.back() = 5.5;
  const double shallow = mean_step_ns(100, 1, 1, 80, variation), deep = mean_step_ns(100, 1, 32, 80, variation);
  EXPECT_GT(shallow, 130);
  EXPECT_LT(deep, 112);
  EXPECT_GE(deep, 100);
  EXPECT_EQ(shallow, mean_step_ns(100, 1, 1, 80, variation));
}

TEST(Feed, NumbersBeyondReasonStayInBounds) {
  EXPECT_GT(mean_step_ns(1, 1 << 30, 1 << 30, 1, {}), 0);
  EXPECT_GT(mean_step_ns(1, -5, -5, 1, {}), 0);
}

}  // namespace
}  // namespace gpucast

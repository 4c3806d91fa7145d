#include "src/loader/scalability.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

TEST(Scalability, TheLawOnPaper) {
  const Scalability law{10, 0.1, 0.01, 1};
  EXPECT_DOUBLE_EQ(law.rate(1), 10);
  EXPECT_DOUBLE_EQ(law.rate(4), 40 / (1 + 0.3 + 0.12));
}

TEST(Scalability, ManyPointsGiveTheLawBack) {
  const Scalability truth{20, 0.08, 0.004, 1};
  std::vector<ScalabilityPoint> points;
  for (const int64_t n : {1, 2, 4, 8, 16}) points.push_back({n, truth.rate(static_cast<double>(n)), 0.01});
  const auto laws = fit_scalability(points, loader_constants());
  for (const double n : {1.0, 3.0, 12.0, 24.0}) {  // the last one is above the measured numbers
    const Rate rate = rate_at(laws, n);
    EXPECT_NEAR(rate.expected / truth.rate(n), 1, n > 16 ? 0.08 : 0.03) << n;
    EXPECT_LE(rate.low, rate.expected);
    EXPECT_GE(rate.high, rate.expected);
  }
}

TEST(Scalability, OnePointIsExtrapolatedWithThePrior) {
  const auto laws = fit_scalability({{1, 10, 0.03}}, loader_constants());
  const Rate two = rate_at(laws, 2), eight = rate_at(laws, 8);
  EXPECT_NEAR(two.expected, 19.5, 0.7);
  EXPECT_NEAR(eight.expected, 70, 7);
  EXPECT_GT((eight.high - eight.low) / eight.expected, (two.high - two.low) / two.expected) << "further away is less certain";
}

TEST(Scalability, TwoPointsTellOfContention) {
  const auto laws = fit_scalability({{1, 10, 0.02}, {2, 13, 0.02}}, loader_constants());
  EXPECT_NEAR(rate_at(laws, 2).expected, 13, 0.6);
  EXPECT_LT(rate_at(laws, 4).expected, 19);
  EXPECT_GT(rate_at(laws, 4).expected, 12);
}

// Two workers on one core reach the core's rate. That gives no information about more cores.
TEST(Scalability, AMachineThatWasFullIsNoContention) {
  const auto laws = fit_scalability({{1, 10, 0.02}, {2, 11, 0.02, 11}}, loader_constants());
  EXPECT_NEAR(rate_at(laws, 2).expected, 19.5, 0.8);
}

TEST(Scalability, NothingMeasured) {
  EXPECT_TRUE(fit_scalability({}, loader_constants()).empty());
  EXPECT_TRUE(fit_scalability({{1, 0, 0.1}, {0, 5, 0.1}, {2, -3, 0.1}}, loader_constants()).empty());
  EXPECT_EQ(rate_at({}, 2).expected, 0);
}

}  // namespace
}  // namespace gpucast

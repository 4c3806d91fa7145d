#include "src/trace/convolutions.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

Convolutions count_one(const std::vector<int64_t>& x, const std::vector<int64_t>& w) {
  Convolutions out;
  add_convolution(x, w, true, &out);
  EXPECT_EQ(out.count(), 1);
  EXPECT_EQ(out.not_float32, 0);
  return out;
}

TEST(Convolutions, AreToldApartByTheirShapes) {
  EXPECT_EQ(count_one({8, 64, 56, 56}, {128, 64, 3, 3}).dense, 1);
  EXPECT_EQ(count_one({8, 64, 56, 56}, {128, 64, 1, 1}).pointwise, 1);
  EXPECT_EQ(count_one({8, 64, 56, 56}, {128, 16, 3, 3}).grouped, 1);
  EXPECT_EQ(count_one({8, 64, 56, 56}, {64, 1, 7, 7}).depthwise, 1);
  EXPECT_EQ(count_one({8, 3, 224, 224}, {64, 3, 7, 7}).few_channels, 1);
  EXPECT_EQ(count_one({8, 1, 28, 28}, {32, 1, 1, 1}).few_channels, 1);
  EXPECT_EQ(count_one({2, 16, 8, 8, 8}, {32, 16, 3, 3, 3}).dense, 1);
}

TEST(Convolutions, OfShapesThatDoNotGoTogetherAreUnknown) {
  EXPECT_EQ(count_one({}, {}).unknown, 1);
  EXPECT_EQ(count_one({8, 64, 56, 56}, {128, 48, 3, 3}).unknown, 1);
  EXPECT_EQ(count_one({8, 0, 56, 56}, {128, 0, 3, 3}).unknown, 1);
  EXPECT_EQ(count_one({8, 64, 56, 56}, {128, 64, 3}).unknown, 1);
}

TEST(Convolutions, OfOtherTypesAreCountedBeside) {
  Convolutions out;
  add_convolution({8, 64, 56, 56}, {128, 64, 3, 3}, false, &out);
  EXPECT_EQ(out.dense, 1);
  EXPECT_EQ(out.not_float32, 1);
}

}  // namespace
}  // namespace gpucast

#include "src/job/typical_launch.h"

#include <gtest/gtest.h>

#include <string>

#include "gpucast/gpu.h"
#include "src/occupancy/occupancy_card.h"
#include "src/time/duration.h"

namespace gpucast {
namespace {

std::vector<TypicalLaunch> launches_on(const char* card, const Operation& operation) {
  const Gpu& gpu = find_gpu(card);
  return typical_launches(operation, card_rates(gpu), occupancy_card(gpu));
}

Operation product_of(Precision precision, int64_t m, int64_t n, int64_t k) {
  Operation out;
  out.kind = OperationKind::gemm;
  out.precision = precision;
  out.element_bytes = precision == Precision::bf16 ? 2 : 4;
  out.gemm.batch = 1;
  out.gemm.m = m;
  out.gemm.n = n;
  out.gemm.k = k;
  return out;
}

Operation convolution_of(int64_t channels, int64_t window, bool channels_last) {
  Operation out;
  out.kind = OperationKind::convolution;
  out.precision = Precision::tf32;
  ConvolutionShape& s = out.convolution;
  s.batch = 64;
  s.in_channels = s.out_channels = channels;
  s.channels_last = channels_last;
  for (int i = 0; i < 2; ++i) s.in[i] = s.out[i] = 56, s.window[i] = window;
  out.bytes_read = out.bytes_written = 4 * s.batch * channels * 56 * 56;
  return out;
}

TEST(TypicalLaunches, HopperProductsStayOnTheirMultiprocessors) {
  const auto launches = launches_on("h200", product_of(Precision::bf16, 8192, 8192, 4096));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].launch.blocks, 132);
  EXPECT_DOUBLE_EQ(launches[0].warps, 0.75) << "three of twelve warps end at once";
  EXPECT_GT(launches_on("a100-80", product_of(Precision::bf16, 8192, 8192, 4096))[0].launch.blocks, 132);
}

TEST(TypicalLaunches, RowsThatAreNotAlignedHaveOlderKernels) {
  const auto launches = launches_on("h200", product_of(Precision::bf16, 8192, 8191, 4096));
  EXPECT_NE(std::string(launches[0].like).find("align1"), std::string::npos);
  EXPECT_GT(launches[0].launch.blocks, 132);
}

// As measured on the H200: a linear layer of 141 rows has tiles of 32 x 32, its gradient of the weight tiles of 64 x 64.
TEST(TypicalLaunches, PlainProductsOnHopperHaveTheMeasuredGrids) {
  Operation forward = product_of(Precision::fp32, 141, 1900, 2017);
  forward.gemm.b_transposed = true;
  EXPECT_EQ(launches_on("h200", forward)[0].launch.blocks, 60 * 5);
  Operation weights = product_of(Precision::fp32, 3926, 3314, 892);
  weights.gemm.a_transposed = true;
  EXPECT_EQ(launches_on("h200", weights)[0].launch.blocks, 62 * 52);
  EXPECT_EQ(launches_on("h200", weights)[0].launch.block_threads, 128);
}

// As NeuSight measured them on an A100 (PyTorch 2.1).
TEST(TypicalLaunches, PlainProductsOnAmpereHaveTheMeasuredGrids) {
  Operation wide = product_of(Precision::fp32, 776, 1176, 339);
  wide.gemm.b_transposed = true;
  EXPECT_EQ(launches_on("a100-40", wide)[0].launch.blocks, 37 * 7);
  EXPECT_EQ(launches_on("a100-40", wide)[0].launch.block_threads, 256);
  Operation large = product_of(Precision::fp32, 2678, 6893, 4673);
  large.gemm.b_transposed = true;
  EXPECT_EQ(launches_on("a100-40", large)[0].launch.blocks, 54 * 42);
  EXPECT_EQ(launches_on("a100-40", large)[0].launch.block_threads, 128);
  Operation batched = product_of(Precision::fp32, 246, 180, 199);
  batched.gemm.batch = 33;
  EXPECT_EQ(launches_on("a100-40", batched)[0].launch.blocks, 2 * 2 * 33);
  EXPECT_EQ(launches_on("a100-40", batched)[0].launch.block_threads, 256);
}

TEST(TypicalLaunches, LongSumsOfFewTilesAreCutOnAmpere) {
  Operation forward = product_of(Precision::fp32, 369, 35, 1401), data = product_of(Precision::fp32, 1024, 1280, 1280);
  forward.gemm.b_transposed = true;
  EXPECT_EQ(launches_on("a100-40", forward)[0].launch.blocks, 2 * 12 * 9);
  const int64_t cut = launches_on("a100-40", data)[0].launch.blocks;
  data.gemm.k = 640;
  EXPECT_EQ(launches_on("a100-40", data)[0].launch.blocks * 3, cut);
}

TEST(TypicalLaunches, ConvolutionsChangeTheLayoutInTheirOwnKernels) {
  const auto launches = launches_on("h200", convolution_of(64, 3, false));
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[1].launch.blocks, 64 * 64 * 56 * 56 / 1024);
  EXPECT_GT(launches[1].time_share, 0.1);
  EXPECT_DOUBLE_EQ(launches[0].time_share + launches[1].time_share, 1);
  EXPECT_EQ(launches_on("h200", convolution_of(64, 3, true)).size(), 1u) << "in channels-last layout already";
  EXPECT_EQ(launches_on("h200", convolution_of(64, 1, false)).size(), 1u) << "a product of whole tensors";
}

TEST(TypicalLaunches, SharesOfBothGradientsAddUp) {
  Operation both = convolution_of(64, 3, false);
  both.convolution.pass = Pass::backward;
  double sum = 0;
  for (const TypicalLaunch& launch : launches_on("h200", both)) sum += launch.time_share;
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(TypicalLaunches, WeightGradientsWithoutTensorCoresFillTheCard) {
  Operation weights = convolution_of(64, 3, false);
  weights.precision = Precision::fp32;
  weights.convolution.pass = Pass::weight_gradient;
  EXPECT_GE(launches_on("h200", weights)[0].launch.blocks, 64 * 132);
}

TEST(TypicalLaunches, BatchNormThatKeepsItsChannelNeedsMoreRegisters) {
  Operation norm;
  norm.kind = OperationKind::normalization;
  norm.per_channel = true;
  norm.pass = Pass::backward;
  norm.rows = 512;
  norm.columns = 64 * 7 * 7;
  EXPECT_EQ(launches_on("h200", norm)[0].kernel.registers, 48);
  norm.columns = 64 * 56 * 56;
  EXPECT_EQ(launches_on("h200", norm)[0].kernel.registers, 32);
  EXPECT_EQ(launches_on("h200", norm)[0].launch.blocks, 512);
}

}  // namespace
}  // namespace gpucast

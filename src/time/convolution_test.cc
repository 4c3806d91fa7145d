// Times computed by hand, for an A100 (108 multiprocessors, 19.5 TFLOP/s in fp32, 312 in fp16, 2039 GB/s) that reaches its datasheet's
// rates.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "gpucast/gpu.h"
#include "src/time/card_rates.h"
#include "src/time/duration.h"

namespace gpucast {
namespace {

std::string pass_constants(const std::string& pass, double most) {
  std::string out = ",\"" + pass + "_most\":" + std::to_string(most);
  for (const char* of : {"efficiency\":1",  "narrow\":1",           "k_overhead\":1e-9",          "least_waves\":1e-9",
                         "overlap\":1e-9",  "start_ns\":1000",      "strided_writes\":2",         "strided\":1.5",
                         "winograd\":1",    "winograd_fused\":1",   "winograd_k_overhead\":1e-9", "winograd_waves\":1e-9",
                         "depthwise\":0.1", "depthwise_passes\":2", "few_channels\":3",           "turned\":0.5",
                         "grouped\":0.2",   "grouped_strided\":4",  "grouped_turned\":2",         "depthwise_wide\":0.05",
                         "uneven\":1.5"}) {
    out += ",\"" + pass + "_" + of;
  }
  return out;
}

Duration duration(const ConvolutionShape& shape, Precision precision = Precision::fp32, int element_bytes = 4, double most = 1000) {
  const CardRates card = card_rates(
      find_gpu("a100-80"),
      R"({"schema_version":1,"cards":{"a100-80":null},"operations":{"convolution":{"all":{"source":"x")" + pass_constants("forward", most) +
          pass_constants("data_gradient", most) + pass_constants("weight_gradient", most) +
          R"(}}},"architectures":{"8.0":{"rates":{"source":"x","dram_fraction":1,"fp32_fraction":1,"fp16_fraction":1,"tf32_fraction":1,
                                "launch_ns":1000}}}})");
  Operation operation;
  operation.kind = OperationKind::convolution;
  operation.precision = precision;
  operation.element_bytes = element_bytes;
  operation.convolution = shape;
  return operation_duration(operation, card);
}

ConvolutionShape square(Pass pass, int64_t batch, int64_t channels, int64_t to, int64_t size, int64_t window, int64_t stride = 1,
                        int64_t groups = 1) {
  ConvolutionShape shape;
  shape.pass = pass;
  shape.batch = batch;
  shape.in_channels = channels;
  shape.out_channels = to;
  shape.groups = groups;
  shape.channels_last = true;
  for (int i = 0; i < 2; ++i) {
    shape.in[i] = size;
    shape.out[i] = size / stride;
    shape.window[i] = window;
    shape.stride[i] = stride;
  }
  return shape;
}

TEST(Convolution, ForwardIsAProductOfPositionsChannelsAndWindow) {
  // 1x1: 27 x 64 x 64 positions are 864 tiles of 128, 256 channels are 2: 1728 tiles, exactly 16 a multiprocessor. 2 x 110592 x 256 x 2048
  // / 19.5e12.
  const Duration found = duration(square(Pass::forward, 27, 2048, 256, 64, 1));
  EXPECT_NEAR(found.expected_ns, 1e9 * 2 * 110592 * 256 * 2048 / 19.5e12 + 1000, 10);
  EXPECT_EQ(found.bound, Bound::compute);
  // Now the last wave is not full: about half of the card waits in it.
  EXPECT_GT(duration(square(Pass::forward, 28, 2048, 256, 64, 1)).expected_ns / found.expected_ns, 1.01);
}

TEST(Convolution, FewPositionsLeaveMultiprocessorsIdle) {
  EXPECT_EQ(duration(square(Pass::forward, 1, 2048, 128, 8, 1)).bound, Bound::tail);
}

TEST(Convolution, WeightGradientCutsItsLongSum) {
  // The product is 128 x 128 over 2^21 positions. In narrow tiles of 2 columns, each sum in 32 parts, 2048 pieces: 19 waves.
  const double whole = 1e9 * 2 * 128 * 128 * (1 << 21) / (19.5e12 / 108);
  const double found = duration(square(Pass::weight_gradient, 128, 128, 128, 128, 1)).expected_ns;
  EXPECT_NEAR(found, whole * 19 / 2048 + 1e9 * 128 * 128 * 2 * 33 / 2.039e12 + 1000, 100);
}

TEST(Convolution, WinogradNeedsFewerProducts) {
  // 3x3 on 4x4 blocks: a quarter of the products, and the transformed tensors are moved, too. Not for 5x5 or strides.
  const double direct = 1e9 * 2 * 32 * 64 * 64 * 512.0 * 512 * 9 / 19.5e12;
  const double found = duration(square(Pass::forward, 32, 512, 512, 64, 3)).expected_ns;
  const double blocks = 32 * 16 * 16;
  EXPECT_NEAR(
      found,
      direct / 4 + 1e9 * (2 * 36 * 4 * (blocks * 1024 + 512 * 512) + 4.0 * (2.0 * 32 * 64 * 64 * 512 + 512 * 512 * 9)) / 2.039e12 + 3000,
      0.03 * found);
  EXPECT_GT(duration(square(Pass::forward, 32, 512, 512, 64, 5)).expected_ns, 0.99 * direct * 25 / 9);
  EXPECT_GT(duration(square(Pass::forward, 32, 512, 512, 64, 3, 2)).expected_ns, 0.99 * direct / 4);
}

TEST(Convolution, StridedDataGradientOfAPointWritesAllPositions) {
  // 1x1 with stride 2: a quarter of the positions has products, but all are written. Its 822 MB are moved three times, the other tensors
  // once.
  const ConvolutionShape shape = square(Pass::data_gradient, 64, 256, 128, 112, 1, 2);
  const double x = 64.0 * 256 * 112 * 112 * 4, y = 64.0 * 128 * 56 * 56 * 4, w = 256.0 * 128 * 4;
  const Duration found = duration(shape);
  EXPECT_NEAR(found.expected_ns, 1e9 * (3 * x + y + w) / 2.039e12 + 1000, 10);
  EXPECT_EQ(found.bound, Bound::memory);
}

TEST(Convolution, DepthwiseRunsOnPlainCores) {
  // 3x3, 512 depthwise channels, fp16: 2 x 64 x 512 x 56 x 56 x 9 at a tenth of 19.5 TFLOP/s. Moving the bytes twice is shorter.
  const ConvolutionShape shape = square(Pass::forward, 64, 512, 512, 56, 3, 1, 512);
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, 1e9 * 2 * 64 * 512.0 * 56 * 56 * 9 / 1.95e12 + 1000, 10);
}

TEST(Convolution, DepthwiseInFp32VisitsEveryInputPosition) {
  // The data gradient of a stride of 2 visits four times the output's positions, at a tenth of 19.5 TFLOP/s; before it there is only a
  // launch.
  const ConvolutionShape shape = square(Pass::data_gradient, 64, 512, 512, 56, 3, 2, 512);
  const double found = duration(shape).expected_ns;
  EXPECT_NEAR(found, 1e9 * 2 * 64 * 512.0 * 56 * 56 * 9 / 1.95e12 + 2500, 10);
  EXPECT_EQ(duration(shape, Precision::tf32).expected_ns, found);
}

TEST(Convolution, WindowsAbove7x7AreSlowWhereChannelsLieTogether) {
  ConvolutionShape shape = square(Pass::weight_gradient, 64, 512, 512, 56, 9, 1, 512);
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, 1e9 * 2 * 64 * 512.0 * 56 * 56 * 81 / 0.975e12 + 1000, 10);
  shape.window[0] = shape.window[1] = 7;
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, 1e9 * 2 * 64 * 512.0 * 56 * 56 * 49 / 1.95e12 + 1000, 10);
}

TEST(Convolution, PyTorchsOwnKernelsComputeInFp32ForAllTypes) {
  // A tenth of 19.5 TFLOP/s in any precision, and one kernel with one launch for each gradient.
  ConvolutionShape shape = square(Pass::forward, 64, 512, 512, 56, 3, 1, 512);
  shape.by_library = false;
  const double one = 1e9 * 2 * 64 * 512.0 * 56 * 56 * 9 / 1.95e12 + 2500;
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, one, 10);
  shape.pass = Pass::backward;
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, 2 * one, 20);
}

TEST(Convolution, GroupsThatLieTogetherMayHaveNoKernelOfTensorCores) {
  // 4 groups of 64 channels, 3x3, fp16: half of a tile of 128, and few groups, at a fifth of 19.5 TFLOP/s. In NCHW layout the tensors are
  // first moved to channels-last; then tensor cores compute them.
  ConvolutionShape shape = square(Pass::weight_gradient, 64, 256, 256, 56, 3, 1, 4);
  const double full = 1e9 * 2 * 64 * 256.0 * 64 * 56 * 56 * 9 / 3.9e12;
  const double plain = full * 2 * std::pow(32 / 4, 0.25);
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, plain + 1000, 10);
  shape.channels_last = false;
  EXPECT_LT(duration(shape, Precision::fp16, 2).expected_ns, plain / 2);
  shape.channels_last = true;
  shape.groups = 8;  // of 32 channels
  EXPECT_LT(duration(shape, Precision::fp16, 2).expected_ns, plain / 4);
  // Two groups of 128 fill their tiles.
  shape.groups = 2;
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, 2 * full * std::pow(32 / 2, 0.25) + 1000, 10);
  // 40 and 48 channels have tensor core kernels, but not in four groups.
  const auto groups_of_48 = [](int64_t groups) {
    return duration(square(Pass::forward, 64, 48 * groups, 48 * groups, 56, 3, 1, groups), Precision::fp16, 2).expected_ns;
  };
  EXPECT_GT(groups_of_48(4), 3 * groups_of_48(8));
}

TEST(Convolution, NarrowGroupsAreComputedSideBySide) {
  // 32 groups of 8 are computed four at a time, as 8 groups of 32 with zeros between the groups. Fewer than 8 channels count as 8.
  const auto forward = [](int64_t channels, int64_t groups) {
    return duration(square(Pass::forward, 64, channels, channels, 56, 5, 1, groups), Precision::fp16, 2).expected_ns;
  };
  EXPECT_NEAR(forward(256, 32), forward(256, 8), 100);
  EXPECT_NEAR(forward(128, 32) / forward(256, 32), 1, 0.01);
}

TEST(Convolution, ChannelsThatAreNoMultipleOfFourTakeLonger) {
  const double even = duration(square(Pass::forward, 64, 252, 256, 56, 3), Precision::fp16, 2).expected_ns;
  const double uneven = duration(square(Pass::forward, 64, 250, 256, 56, 3), Precision::fp16, 2).expected_ns;
  EXPECT_NEAR(uneven / even, 1.5, 0.05);
}

TEST(Convolution, StridedGradientsOfGroupsAreSlow) {
  // Four times as long, for positions that no output used. 4 groups of 16 channels need 11/4 of that, because 11 run at a time.
  const double plain = 1e9 * 2 * 64 * 256.0 * 64 * 28 * 28 * 9 / 3.9e12 * 2 * std::pow(32 / 4, 0.25);
  EXPECT_NEAR(duration(square(Pass::data_gradient, 64, 256, 256, 56, 3, 2, 4), Precision::fp16, 2).expected_ns, 4 * plain + 1000, 10);
  const double narrow = 1e9 * 2 * 64 * 64.0 * 16 * 28 * 28 * 9 / (3.9e12 * 0.3);
  EXPECT_NEAR(duration(square(Pass::data_gradient, 64, 64, 64, 56, 3, 2, 4), Precision::fp16, 2).expected_ns, 11 * narrow + 1000, 10);
  // Narrow groups of many channels have their own kernels.
  EXPECT_LT(duration(square(Pass::data_gradient, 64, 256, 256, 56, 3, 2, 16), Precision::fp16, 2).expected_ns, plain / 4);
}

TEST(Convolution, GroupsInNchwTakeLongerThanTheirProducts) {
  ConvolutionShape shape = square(Pass::forward, 64, 256, 256, 56, 3, 1, 4);
  shape.channels_last = false;
  const double groups = duration(shape, Precision::fp16, 2).expected_ns;
  shape.in_channels = shape.out_channels = 32;  // 8 a group: the time of their products
  const double few = duration(shape, Precision::fp16, 2).expected_ns;
  EXPECT_GT(groups, 4 * few);
}

TEST(Convolution, TensorCoresWantChannelsTogetherAndInEights) {
  ConvolutionShape shape = square(Pass::forward, 256, 256, 256, 56, 1);
  const double together = duration(shape, Precision::fp16, 2).expected_ns;
  shape.channels_last = false;
  const double x = 256.0 * 256 * 56 * 56 * 2;
  // Half of both tensors' bytes change their layout: they are read and written once more.
  EXPECT_NEAR(duration(shape, Precision::fp16, 2).expected_ns, together + 1e9 * 2 * x / 2.039e12 + 2000, 10);
  EXPECT_EQ(duration(square(Pass::forward, 64, 3, 64, 112, 7), Precision::fp16, 2).bound, Bound::compute);
  // 252 channels are padded first: their tensor is read and written once more.
  const double eights = duration(square(Pass::forward, 256, 256, 256, 56, 1), Precision::fp16, 2).expected_ns;
  const double odd = duration(square(Pass::forward, 256, 252, 256, 56, 1), Precision::fp16, 2).expected_ns;
  EXPECT_GT(odd, eights + 1e9 * 0.9 * x * 252 / 256 / 2.039e12);
}

TEST(Convolution, FewChannelsAreMadeAsSixteen) {
  // Kernels for 4 channels compute 16: the time is the same as for 16.
  const double sixteen = duration(square(Pass::forward, 64, 512, 16, 64, 5)).expected_ns;
  EXPECT_NEAR(duration(square(Pass::forward, 64, 512, 4, 64, 5)).expected_ns, sixteen, 0.01 * sixteen);
}

TEST(Convolution, LargeOnesReachTheMostAndNoMore) {
  const ConvolutionShape shape = square(Pass::forward, 27, 2048, 256, 64, 1);
  const double whole = 1e9 * 2 * 110592 * 256 * 2048 / 19.5e12;
  EXPECT_NEAR(duration(shape).expected_ns, whole + 1000, 10);
  EXPECT_NEAR(duration(shape, Precision::fp32, 4, 0.8).expected_ns, whole / 0.8 + 1000, 10);
}

TEST(Convolution, HalfPrecisionWithoutTensorCoresHasTheKernelsOfFp32) {
  const CardRates card = card_rates(find_gpu("gtx1080ti"), "");
  EXPECT_EQ(card.convolution[Precision::fp16][Pass::forward].efficiency, card.convolution[Precision::fp32][Pass::forward].efficiency);
  const CardRates newer = card_rates(find_gpu("v100-16"), "");
  EXPECT_NE(newer.convolution[Precision::fp16][Pass::forward].efficiency, newer.convolution[Precision::fp32][Pass::forward].efficiency);
}

TEST(Convolution, TransposedIsTheOtherPass) {
  ConvolutionShape shape = square(Pass::forward, 8, 256, 128, 32, 4, 1);
  const double gradient = duration(square(Pass::data_gradient, 8, 128, 256, 32, 4, 1)).expected_ns;
  shape.transposed = true;
  EXPECT_EQ(duration(shape).expected_ns, gradient);
}

}  // namespace
}  // namespace gpucast

#include "src/vgpu/libs/cudnn_on_card.h"

#include <gtest/gtest.h>

#include <string>

namespace gpucast::vgpu::cudnn {
namespace {

constexpr Card kH200{9, 132};
constexpr int kTypeFp32 = 0, kTypeBf16 = 9;

ConvolutionProblem gradient_of_filter(int type, int64_t batch, int64_t inputs, int64_t outputs, int64_t size, int64_t window,
                                      int64_t groups = 1) {
  const bool channels_last = type == kTypeBf16;
  const std::vector<int64_t> strides = {inputs * size * size, channels_last ? 1 : size * size, channels_last ? size * inputs : size,
                                        channels_last ? inputs : 1};
  return {ConvolutionKind::backward_filter,
          type,
          {batch, inputs, size, size},
          {outputs, inputs / groups, window, window},
          {batch, outputs, size, size},
          strides,
          {window / 2, window / 2},
          {1, 1},
          {1, 1},
          0};
}

// In blocks of 512 bytes, as PyTorch's allocator counts.
int64_t first_workspace(const ConvolutionProblem& problem, const char* answer, Card card = kH200) {
  auto engines = parse_answer(answer);
  answer_as_on_card(problem, card, &*engines);
  return (*engines->front().workspace_bytes + 511) / 512 * 512;
}

// Measured on an H200 (eval/truth/h200/convolutions.jsonl), TF32; cuDNN 9.19 gave these answers without a card.
TEST(CudnnOnCard, SegmentsOfTheGradientOfTheFilter) {
  const char* tile_64 = "68,13287635,0,,2=5.13=0.18=1.25=0.27=1.28=1;68,12992659,0,,2=0.13=0.18=1.25=0.27=1.28=1";
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeFp32, 8, 64, 64, 56, 3), tile_64), 15057920);
  const char* large = "68,35127443,0,,2=0.13=0.18=1.25=0.27=1.28=1";
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeFp32, 8, 512, 512, 28, 3), large), 43779072);
  const char* few_steps = "68,15859859,0,,2=0.13=0.18=1.25=0.27=1.28=1";
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeFp32, 8, 512, 512, 14, 3), few_steps), 21365248);
}

TEST(CudnnOnCard, SegmentsOfOtherPasses) {
  ConvolutionProblem problem = gradient_of_filter(kTypeFp32, 8, 512, 512, 14, 3);
  problem.kind = ConvolutionKind::backward_data;
  EXPECT_EQ(first_workspace(problem, "71,15859728,0,,2=3.13=0.18=0.25=0.27=4.28=1"), 28443648);
}

TEST(CudnnOnCard, ClustersOfThree) {
  const char* answer = "65,295107,0,,2=5.13=1.18=1.25=0.27=1.28=3;65,0,0,,2=5.13=1.18=1.25=0.27=1.28=1";
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeBf16, 8, 64, 64, 56, 3), answer), 1917952);
}

TEST(CudnnOnCard, AKnobForbidsSegments) {
  const char* answer = "65,131,0,,2=0.13=1.18=1.25=1.27=1.28=8";
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeBf16, 8, 512, 512, 28, 3), answer), 512);
}

TEST(CudnnOnCard, DepthwiseKernelsComeFirst) {
  const char* answer = "10,48323191,,,;9,38685712,,,;0,0,,,";
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeBf16, 8, 96, 96, 56, 7, 96), answer), 1204224);
}

TEST(CudnnOnCard, OtherCardsAndEnginesStay) {
  const char* answer = "68,13287635,0,,2=5.13=0.18=1.25=0.27=1.28=1";
  const int64_t unchanged = (13287635 + 511) / 512 * 512;
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeFp32, 8, 64, 64, 56, 3), answer, {8, 108}), unchanged);
  EXPECT_EQ(first_workspace(gradient_of_filter(kTypeFp32, 8, 64, 64, 56, 3), "50,13287635,0,,2=5.13=0"), unchanged);
}

}  // namespace
}  // namespace gpucast::vgpu::cudnn

// Lower precision on traces of a few events, with the sums done by hand.

#include <gtest/gtest.h>

#include "src/orchestrate/autocast_lists.h"
#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/roles.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

OrchestrateOptions lower(const char* dtype, bool amp) {
  OrchestrateOptions options;
  options.dtype = dtype;
  options.amp = amp;
  return options;
}

Sequence apply(const ProfileFacts& facts, const OrchestrateOptions& options) {
  Sequence sequence = traced_sequence(facts);
  assign_roles(facts, &sequence);
  use_lower_precision(facts, options, &sequence);
  return sequence;
}

std::vector<int64_t> sizes(const Sequence& sequence) {
  std::vector<int64_t> out;
  for (const GpuBlock& block : sequence.blocks) out.push_back(block.size_bytes);
  return out;
}

// x[64, 32] -> linear with w[16, 32] -> y[64, 16]; the gradients; an optimizer's step. Forward 100 to 200, backward 300 to 400.
// Blocks: 0 the parameter, 1 the input, 2 y, 3 the gradient of y, 4 the gradient of w.
constexpr int64_t kWeight = 16 * 32, kInput = 64 * 32, kResult = 64 * 16;
void linear(HandMadeTrace* trace) {
  trace->op("aten::uniform_", 10, 20, {-1, "[[16, 32]]", "[\"float\"]"});
  trace->block(4 * kWeight, 15);
  trace->op("aten::randn", 90, 95, {-1, "[[64, 32]]", "[\"float\"]"});
  trace->block(4 * kInput, 92, 450);
  trace->module("Linear_0", 100, 200);
  trace->op("aten::linear", 110, 190, {1, "[[64, 32], [16, 32]]", "[\"float\", \"float\"]"});
  trace->block(4 * kResult, 150, 250);
  trace->op("autograd::engine::evaluate_function: MmBackward0", 310, 390, {1});
  trace->op("MmBackward0", 320, 380, {1});
  trace->op("aten::mm", 330, 370, {-1, "[[16, 64], [64, 32]]", "[\"float\", \"float\"]"});
  trace->block(4 * kResult, 305, 385);
  trace->block(4 * kWeight, 340, 650);
  trace->annotation("Optimizer.step#SGD.step", 500, 600);
}

TEST(MixedPrecision, WithoutAnOptionNothingChanges) {
  HandMadeTrace trace;
  linear(&trace);
  EXPECT_EQ(sizes(apply(trace.facts(), {})), (std::vector<int64_t>{4 * kWeight, 4 * kInput, 4 * kResult, 4 * kResult, 4 * kWeight}));
}

TEST(MixedPrecision, AModelInLowerPrecisionHasTwoBytesAnElementEverywhere) {
  HandMadeTrace trace;
  linear(&trace);
  const Sequence sequence = apply(trace.facts(), lower("bf16", false));
  ASSERT_EQ(sequence.blocks.size(), 5U);  // and no casts
  EXPECT_EQ(sequence.blocks[0].size_bytes, 2 * kWeight);
  EXPECT_EQ(sequence.blocks[1].size_bytes, 2 * kInput);
  EXPECT_EQ(sequence.blocks[2].size_bytes, 2 * kResult);
  EXPECT_EQ(sequence.blocks[4].size_bytes, 2 * kWeight);
}

TEST(MixedPrecision, AutocastCastsInputsAndKeepsParametersAndGradients) {
  HandMadeTrace trace;
  linear(&trace);
  const Sequence sequence = apply(trace.facts(), lower("fp16", true));
  EXPECT_EQ(sequence.blocks[0].size_bytes, 4 * kWeight);
  EXPECT_EQ(sequence.blocks[1].size_bytes, 4 * kInput);
  EXPECT_EQ(sequence.blocks[2].size_bytes, 2 * kResult);
  EXPECT_EQ(sequence.blocks[4].size_bytes, 4 * kWeight);
  // Added blocks: the casts of the weight and of the input, which backward frees, and the weight's gradient in lower precision.
  ASSERT_EQ(sequence.blocks.size(), 8U);
  const GpuBlock& weight = sequence.blocks[5];
  const GpuBlock& input = sequence.blocks[6];
  const GpuBlock& gradient = sequence.blocks[7];
  EXPECT_EQ(weight.size_bytes, 2 * kWeight);
  EXPECT_EQ(input.size_bytes, 2 * kInput);
  EXPECT_EQ(weight.alloc.time_ns, 110);
  EXPECT_EQ(weight.free.time_ns, 310);  // autocast ends with forward, and no gradient of the input needs the weight
  EXPECT_EQ(input.free.time_ns, 390);
  EXPECT_EQ(gradient.size_bytes, 2 * kWeight);
  EXPECT_EQ(gradient.alloc.time_ns, 340);
  // Both are alive for a moment.
  EXPECT_EQ(sequence.blocks[4].alloc.time_ns, 390);
  EXPECT_LT(sequence.blocks[4].alloc, gradient.free);
}

TEST(MixedPrecision, AWeightsCastIsKeptForTheGradientOfTheInput) {
  HandMadeTrace trace;
  linear(&trace);
  trace.block(4 * kInput, 345, 420);
  const Sequence sequence = apply(trace.facts(), lower("bf16", true));
  EXPECT_EQ(sequence.blocks[6].size_bytes, 2 * kWeight);
  EXPECT_EQ(sequence.blocks[6].free.time_ns, 390);
}

TEST(MixedPrecision, TheTraceSaysWhereAutocastIs) {
  HandMadeTrace trace;
  linear(&trace);
  trace.annotation("gpucast.autocast#float16", 105, 195);
  const ProfileFacts facts = trace.facts();
  const LowerPrecision precision = lower_precision_of(facts, {});
  EXPECT_TRUE(precision.wanted && precision.amp && precision.fp16);
  EXPECT_TRUE(precision.products_at(150));
  EXPECT_FALSE(precision.products_at(198));
  EXPECT_EQ(apply(facts, {}).blocks[2].size_bytes, 2 * kResult);
}

TEST(MixedPrecision, WhereAutocastIsOffNothingIsCast) {
  HandMadeTrace trace;
  linear(&trace);
  trace.annotation("gpucast.autocast#bfloat16", 105, 195);
  trace.annotation("gpucast.autocast#off", 108, 192);
  EXPECT_EQ(apply(trace.facts(), {}).blocks[2].size_bytes, 4 * kResult);
}

TEST(MixedPrecision, ASumTakesTheWiderTypeOfItsTwoInputs) {
  // exp is on autocast's fp32 list. Its result does not shrink, and neither does the sum that uses it.
  HandMadeTrace trace;
  linear(&trace);
  trace.op("aten::exp", 210, 215, {2, "[[64, 16]]", "[\"float\"]"});
  trace.block(4 * kResult, 212, 240);
  trace.op("aten::add", 220, 225, {3, "[[64, 16], [64, 16]]", "[\"float\", \"float\"]"});
  trace.block(4 * kResult, 222, 240);
  trace.op("aten::neg", 230, 235, {4, "[[64, 16]]", "[\"float\"]"});
  trace.block(4 * kResult, 232, 240);
  trace.annotation("gpucast.autocast#bfloat16", 105, 260);
  const ProfileFacts facts = trace.facts();
  const Sequence sequence = apply(facts, {});
  EXPECT_EQ(sequence.blocks[2].size_bytes, 2 * kResult);  // the result of linear
  for (size_t block = 3; block < 6; ++block) EXPECT_EQ(sequence.blocks[block].size_bytes, 4 * kResult) << block;
}

TEST(MixedPrecision, IntegersAndBoolsKeepTheirSize) {
  HandMadeTrace trace;
  linear(&trace);
  trace.op("aten::gt", 210, 215, {2, "[[64, 16]]", "[\"float\"]"});
  trace.block(kResult, 212, 240);
  trace.op("aten::add", 220, 225, {2, "[[64]]", "[\"long int\"]"});
  trace.block(512, 222, 240);
  const Sequence sequence = apply(trace.facts(), lower("bf16", false));
  EXPECT_EQ(sequence.blocks[3].size_bytes, kResult);
  EXPECT_EQ(sequence.blocks[4].size_bytes, 512);
}

TEST(AutocastLists, SayWhatEachOperatorComputesIn) {
  EXPECT_EQ(cast_policy("aten::linear"), CastPolicy::lower);
  EXPECT_EQ(cast_policy("aten::layer_norm"), CastPolicy::fp32);
  EXPECT_EQ(cast_policy("aten::softmax"), CastPolicy::fp32_result);
  EXPECT_EQ(cast_policy("aten::relu"), CastPolicy::promote);
  EXPECT_EQ(cast_policy("torchvision::nms"), CastPolicy::promote);
}

}  // namespace
}  // namespace gpucast

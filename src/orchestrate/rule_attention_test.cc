// nn.MultiheadAttention and grouped queries. Figures of the virtual GPU: [16, 4, 128, 64], float, torch 2.6.

#include <gtest/gtest.h>

#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

constexpr int64_t kAttentionOutput = 2097152, kLogsumexp = 32768, kScratch = 2099200;
constexpr std::string_view kTypes = R"(["float", "float", "float", "", "Scalar", "Scalar", "", "Scalar"])";

Sequence attend(const HandMadeTrace::Op& op, bool with_cpu_kernel) {
  HandMadeTrace trace;
  trace.module("MultiheadAttention_0", 100, 200);
  trace.op("aten::scaled_dot_product_attention", 110, 190, op);
  trace.op(with_cpu_kernel ? "aten::_scaled_dot_product_flash_attention_for_cpu" : "aten::bmm", 111, 189, {5});
  trace.block(kAttentionOutput, 120, 395);
  trace.block(kLogsumexp, 130, 390);
  trace.op("aten::relu", 195, 198, {8});
  trace.op("autograd::engine::evaluate_function: ScaledDotProductFlashAttentionForCpuBackward0", 300, 400, {5});
  for (int i = 0; i < 3; ++i) trace.block(kAttentionOutput, 350 + i, 410 + i);
  trace.annotation("Optimizer.step#Adam.step", 500, 600);
  const ProfileFacts facts = trace.facts();
  Sequence sequence = traced_sequence(facts);
  use_cuda_attention(facts, {}, &sequence);
  return sequence;
}

TEST(AttentionRule, WithTheSequenceFirstTheOutputIsCopied) {
  const Sequence sequence = attend({5, "[[16, 4, 128, 64], [16, 4, 128, 64], [16, 4, 128, 64], [], [], [], [], []]", kTypes, "",
                                    "[[256, 64, 4096, 1], [256, 64, 4096, 1], [256, 64, 4096, 1], [], [], [], [], []]"},
                                   true);
  EXPECT_EQ(live_bytes(sequence, 250), 2 * kAttentionOutput + kLogsumexp);
  // In backward: the output, the copy of its gradient, three gradients; the product with two sums of it, then scratch memory, which is
  // larger.
  EXPECT_EQ(peak_bytes(sequence), 5 * kAttentionOutput + kLogsumexp + std::max(kAttentionOutput + 2 * kLogsumexp, kLogsumexp + kScratch));
  EXPECT_EQ(live_bytes(sequence, 405), 3 * kAttentionOutput);
}

TEST(AttentionRule, BatchFirstTheOutputIsNot) {
  const Sequence sequence = attend({5, "[[16, 4, 128, 64], [16, 4, 128, 64], [16, 4, 128, 64], [], [], [], [], []]", kTypes, "",
                                    "[[32768, 64, 256, 1], [32768, 64, 256, 1], [32768, 64, 256, 1], [], [], [], [], []]"},
                                   true);
  EXPECT_EQ(live_bytes(sequence, 250), kAttentionOutput + kLogsumexp);
}

TEST(AttentionRule, GroupedQueriesInFp32AreWrittenOutAsOnTheCpu) {
  const Sequence sequence = attend({5, "[[16, 4, 128, 64], [16, 2, 128, 64], [16, 2, 128, 64], [], [], [], [], []]", kTypes}, false);
  EXPECT_EQ(sequence.blocks.size(), sequence.traced);
  for (const GpuBlock& block : sequence.blocks) EXPECT_TRUE(block.kept());
}

}  // namespace
}  // namespace gpucast

// Figures of the virtual GPU: nn.GRU(128, 256, batch_first=True) on [32, 32, 128], float, torch 2.6.

#include <gtest/gtest.h>

#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/roles.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

constexpr int64_t kRnnInput = 524288, kRnnOutput = 1048576, kState = 32768, kWorkspace = 3145728, kReserve = 4194304, kWeights = 1185792;

Sequence gru(bool batch_first) {
  HandMadeTrace trace;
  int64_t at = 10;
  for (const int64_t bytes : {393216, 786432, 3072, 3072}) trace.block(bytes, at++);
  trace.op("aten::empty", 5, 50);
  trace.module("GRU_0", 100, 200);
  const std::string_view concrete = batch_first ? R"(["", "", "", "True", "1", "0.", "True", "False", "True"])"
                                                : R"(["", "", "", "True", "1", "0.", "True", "False", "False"])";
  trace.op("aten::gru", 110, 190,
           {7, "[[32, 32, 128], [1, 32, 256], [[768, 128], [768, 256], [768], [768]], [], [], [], [], [], []]",
            R"(["float", "float", "TensorList", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar", "Scalar"])", concrete});
  trace.op("aten::stack", 170, 180, {8});
  trace.block(98304, 120, 130);       // a step's gates
  trace.block(131072, 125, 340);      // kept for backward
  trace.block(kRnnOutput, 175, 250);  // the output
  trace.op("aten::mean", 210, 220, {9});
  trace.op("autograd::engine::evaluate_function: StackBackward0", 300, 310, {8});
  trace.op("autograd::engine::evaluate_function: AddmmBackward0", 320, 360, {7});
  at = 330;
  for (const int64_t bytes : {393216, 786432, 3072, 3072}) trace.block(bytes, at++, 700);  // the gradients
  trace.annotation("Optimizer.step#SGD.step", 500, 600);
  trace.annotation("Optimizer.zero_grad#SGD.zero_grad", 690, 710);
  const ProfileFacts facts = trace.facts();
  Sequence sequence = traced_sequence(facts);
  assign_roles(facts, &sequence);
  use_cudnn_rnn(facts, {}, &sequence);
  return sequence;
}

TEST(RnnRule, ForwardKeepsTheOutputAndTheReserve) {
  const Sequence sequence = gru(true);
  EXPECT_EQ(live_bytes(sequence, 205), kWeights + kRnnOutput + kReserve);
}

TEST(RnnRule, ThePeakIsInBackwardAtTheGradientsOfTheWeights) {
  EXPECT_EQ(peak_bytes(gru(true)), kWeights + kRnnOutput + kReserve + 2 * kState + 2 * kRnnInput + kWeights + kWorkspace);
}

TEST(RnnRule, WithTheSequenceFirstNothingIsCopied) {
  EXPECT_EQ(peak_bytes(gru(false)), kWeights + kRnnOutput + kReserve + 2 * kState + kRnnInput + kWeights + kWorkspace);
}

TEST(RnnRule, TheGradientsOfTheWeightsAreOneBlock) {
  const Sequence sequence = gru(true);
  EXPECT_EQ(live_bytes(sequence, 450), 2 * kWeights);
  EXPECT_EQ(live_bytes(sequence, 705), kWeights);
  int gradients = 0;
  for (const GpuBlock& block : sequence.blocks) gradients += block.kept() && block.role == Role::gradient ? 1 : 0;
  EXPECT_EQ(gradients, 1);
}

}  // namespace
}  // namespace gpucast

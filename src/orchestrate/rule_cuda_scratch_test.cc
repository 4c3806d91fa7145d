// Figures of the virtual GPU, torch 2.6.

#include <gtest/gtest.h>

#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

Sequence scratch_of(HandMadeTrace* trace) {
  const ProfileFacts facts = trace->facts();
  Sequence sequence = traced_sequence(facts);
  add_cuda_scratch(facts, {}, &sequence);
  return sequence;
}

// nn.EmbeddingBag(20000, 256), 16384 indices in 256 bags.
TEST(CudaScratchRule, AnEmbeddingBagSumsRowsInABuffer) {
  HandMadeTrace trace;
  trace.op("aten::_embedding_bag_dense_backward", 300, 400,
           {3, "[[256, 256], [16384], [16384], [256], [256], [], [], [], [], []]",
            R"(["float", "long int", "long int", "long int", "long int", "Scalar", "Scalar", "Scalar", "", "Scalar"])",
            R"(["", "", "", "", "", "20000", "False", "1", "", "-1"])"});
  trace.block(20480000, 350);
  const Sequence sequence = scratch_of(&trace);
  // Five lists of indices, the begins of the partial sums, the sums.
  EXPECT_EQ(peak_bytes(sequence), 20480000 + 5 * 131072 + 144176 + 18454528);
  EXPECT_EQ(live_bytes(sequence, 401), 20480000);
}

TEST(CudaScratchRule, AnEmbeddingOfFewTokensNeedsNone) {
  HandMadeTrace trace;
  trace.op("aten::embedding_dense_backward", 300, 400,
           {3, "[[16, 128, 256], [16, 128], [], [], []]", R"(["float", "long int", "Scalar", "Scalar", "Scalar"])",
            R"(["", "", "20000", "-1", "False"])"});
  trace.block(20480000, 350);
  EXPECT_EQ(peak_bytes(scratch_of(&trace)), 20480000);
}

// [16, 4, 128, 128], float.
TEST(CudaScratchRule, SoftmaxMultipliesOutputAndGradientFirst) {
  for (const std::string_view name : {"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"}) {
    HandMadeTrace trace;
    trace.op(name, 300, 400, {3, "[[16, 4, 128, 128], [16, 4, 128, 128], [], []]", ""});
    trace.block(4194304, 350, 450);
    EXPECT_EQ(peak_bytes(scratch_of(&trace)), name == "aten::_softmax_backward_data" ? 2 * 4194304 : 4194304) << name;
  }
}

}  // namespace
}  // namespace gpucast

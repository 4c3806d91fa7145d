// Figures of the virtual GPU, torch 2.6, rtx3060.

#include <gtest/gtest.h>

#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

int64_t buffer_of(std::string_view name) {
  HandMadeTrace trace;
  trace.module("Net_0", 100, 200);
  const HandMadeTrace::Op op = {3, "[[2048, 512], [], [], []]", R"(["float", "", "", ""])", R"(["", "[0]", "1", "False"])",
                                "[[512, 1], [], [], []]"};
  trace.op(name, 120, 150, op);
  if (name == "aten::std") trace.op(name, 125, 145, op);  // it calls itself, in another overload
  trace.block(2048, 140, 160);
  trace.op("autograd::engine::evaluate_function: Backward0", 300, 400, {3});
  trace.annotation("Optimizer.step#Adam.step", 500, 600);
  const ProfileFacts facts = trace.facts();
  Sequence sequence = traced_sequence(facts);
  add_reduction_buffers(facts, {}, &sequence);
  int64_t most = 0;
  for (size_t i = sequence.traced; i < sequence.blocks.size(); ++i) most += sequence.blocks[i].size_bytes;
  return most;
}

TEST(ReductionRule, AVarianceSumsFourNumbersWhereASumHasOne) {
  EXPECT_EQ(buffer_of("aten::sum"), 8388608 + 16);
  EXPECT_EQ(buffer_of("aten::std"), 33554432 + 16);
}

}  // namespace
}  // namespace gpucast

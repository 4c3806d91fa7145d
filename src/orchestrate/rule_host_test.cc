#include <gtest/gtest.h>

#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/roles.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

// copy.deepcopy(model) after model.to("cuda"), for an average of the weights. With it, the virtual GPU allocates 12 MiB more for a network
// of three layers of 1024 by 1024.
TEST(HostRule, ACopyOfTheModelOnTheDeviceIsTheDevices) {
  HandMadeTrace trace;
  trace.op("aten::empty", 5, 15);
  trace.annotation("gpucast.to_device#module", 20, 30);
  trace.block(1024, 25);
  trace.op("aten::clone", 40, 50);
  trace.block(1024, 45);      // its copy
  trace.block(1024, 46, 48);  // a temporary
  trace.block(5000000, 60);   // the data set
  trace.module("Linear_0", 100, 200);
  trace.op("aten::relu", 150, 160, {0, "[[4, 8]]", R"(["float"])"});
  trace.op("autograd::engine::evaluate_function: ReluBackward0", 300, 400, {0});
  trace.block(1024, 350);  // the gradient
  trace.annotation("Optimizer.step#Adam.step", 500, 600);
  const ProfileFacts facts = trace.facts();
  Sequence sequence = traced_sequence(facts);
  assign_roles(facts, &sequence);
  drop_host_data(facts, {}, &sequence);
  int kept = 0;
  for (const GpuBlock& block : sequence.blocks) kept += block.kept() ? 1 : 0;
  EXPECT_EQ(kept, 3);  // the parameter, its copy, its gradient
  EXPECT_EQ(live_bytes(sequence, 450), 3 * 1024);
}

}  // namespace
}  // namespace gpucast

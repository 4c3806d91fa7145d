#include "src/orchestrate/method_veritasest.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"
#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/roles.h"

namespace gpucast {
namespace {

// Iteration `i` of a wrapper with one layer, 10000 ns each.
void add_iteration(HandMadeTrace* trace, int64_t i, bool clears) {
  const int64_t at = 10000 * i, number = 10 * i;
  trace->annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 500);
  trace->block(4000, at + 100, at + 9000);  // the batch
  if (clears) trace->annotation("Optimizer.zero_grad#Adam.zero_grad", at + 600, at + 700);

  trace->module("Net_0", at + 1000, at + 2000);
  trace->op("aten::mul", at + 1100, at + 1200, {.number = number});
  trace->block(640, at + 1150, at + 3500);  // made by the wrapper, by no layer
  trace->module("Linear_0", at + 1300, at + 1800);
  trace->op("aten::linear", at + 1400, at + 1700, {.number = number + 1});
  trace->block(960, at + 1450, at + 1500);   // scratch
  trace->block(2560, at + 1600, at + 3300);  // activation
  trace->op("aten::addmm", at + 1410, at + 1690);

  trace->op("autograd::engine::evaluate_function: AddmmBackward0", at + 3000, at + 3400, {.number = number + 1});
  trace->block(10240, at + 3100, clears ? at + 10650 : 0);  // gradient
  trace->block(1280, at + 3200, at + 3600);                 // gradient of the activation: freed before the step
  trace->op("autograd::engine::evaluate_function: MulBackward0", at + 3450, at + 3700, {.number = number});
  trace->block(640, at + 3500, at + 3690);

  trace->annotation("Optimizer.step#Adam.step", at + 5000, at + 6000);
  trace->op("aten::sqrt", at + 5100, at + 5200);
  if (i == 1) trace->block(10240, at + 5050);  // state, never freed
  trace->block(10240, at + 5150, at + 5500);   // a temporary of a parameter's size
  trace->block(48, at + 5160, at + 5500);      // no parameter has this size
}

Sequence run(HandMadeTrace* trace) {
  const ProfileFacts facts = trace->facts();
  Sequence sequence = traced_sequence(facts);
  assign_roles(facts, &sequence);
  OrchestrateOptions options;
  options.method = "veritasest";
  apply_rules(facts, options, &sequence);
  return sequence;
}

TEST(VeritasEst, TwoIterationsOfOneLayer) {
  HandMadeTrace trace;
  for (int64_t i = 1; i <= 3; ++i) add_iteration(&trace, i, true);
  const Sequence sequence = run(&trace);

  // Forward of iteration 1: parameter 10240 (the size of its gradient), batch 4000, activation 2560.
  EXPECT_EQ(live_bytes(sequence, 11650), 10240 + 4000 + 2560);
  // Backward adds the gradient 10240 and the activation's gradient 1280, but not the wrapper's 640.
  EXPECT_EQ(live_bytes(sequence, 13250), 10240 + 4000 + 2560 + 10240 + 1280);
  // The optimizer's step: parameter, gradient, batch, and blocks of a parameter's size: state 10240, temporary 10240; not the 48.
  EXPECT_EQ(live_bytes(sequence, 15200), 2 * 10240 + 4000 + 2 * 10240);
  // The temporary is freed, the state stays.
  EXPECT_EQ(live_bytes(sequence, 15600), 2 * 10240 + 4000 + 10240);
  // Iteration 2 has its own batch. The gradient lives until zero_grad at 20600, not until it is freed (20650).
  EXPECT_EQ(live_bytes(sequence, 20590), 2 * 10240 + 4000 + 10240);
  EXPECT_EQ(live_bytes(sequence, 20620), 10240 + 4000 + 10240);
  // In backward of iteration 2 the state is alive too.
  EXPECT_EQ(live_bytes(sequence, 23250), 10240 + 4000 + 2560 + 10240 + 1280 + 10240);
  // Iteration 3 is not modelled: only parameter and state are alive.
  EXPECT_EQ(live_bytes(sequence, 31650), 10240 + 10240);
  // The peak is a step with its temporary.
  EXPECT_EQ(peak_bytes(sequence), 2 * 10240 + 4000 + 2 * 10240);
}

TEST(VeritasEst, GradientsStayWithoutZeroGrad) {
  HandMadeTrace trace;
  add_iteration(&trace, 1, false);
  const Sequence sequence = run(&trace);
  // One iteration: parameter, gradient, state. Nothing frees the batch.
  EXPECT_EQ(live_bytes(sequence, 99999), 3 * 10240 + 4000);
}

TEST(VeritasEst, MethodsByName) {
  EXPECT_EQ(method_rules("veritasest").size(), veritasest_rules().size());
  for (const Rule& rule : method_rules("xmem")) EXPECT_TRUE(rule.paper) << rule.name;
  for (const Rule& rule : method_rules("gpucast")) EXPECT_STRNE(rule.name, "filter");
  try {
    method_rules("veritasets");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"veritasest\"?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gpucast

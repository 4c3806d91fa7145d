#include "src/orchestrate/method_dnnmem.h"

#include <gtest/gtest.h>

#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/roles.h"

namespace gpucast {
namespace {

constexpr const char* kTwoTensors = R"(["float", "float"])";

struct Script {
  const char* optimizer = "SGD";
  int64_t state_bytes = 0;
  int64_t clear_at = 500;  // zero_grad, from the begin of the iteration
  int64_t activation_until = 3500;
};

// linear(4 -> 8), relu_, linear(8 -> 2) without biases, a batch of 2: one iteration, 10000 ns.
void add_iteration(HandMadeTrace* trace, int64_t i, const Script& script) {
  const int64_t at = 10000 * i, number = 10 * i;
  trace->annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 400);
  trace->block(32, at + 100, at + 9000);  // batch: 2 * 4 floats
  trace->annotation(std::string("Optimizer.zero_grad#") + script.optimizer + ".zero_grad", at + script.clear_at, at + script.clear_at + 50);
  trace->module("Net_0", at + 1000, at + 2000);
  trace->op("aten::linear", at + 1100, at + 1200, {.number = number, .dims = "[[2, 4], [8, 4]]", .types = kTwoTensors});
  trace->block(48, at + 1110, at + 1120);                     // scratch
  trace->block(64, at + 1150, at + script.activation_until);  // 2 * 8 floats
  trace->op("aten::relu_", at + 1300, at + 1400, {.number = number + 1, .dims = "[[2, 8]]", .types = R"(["float"])"});
  trace->op("aten::linear", at + 1500, at + 1600, {.number = number + 2, .dims = "[[2, 8], [2, 8]]", .types = kTwoTensors});
  trace->block(16, at + 1550, at + 3100);  // 2 * 2 floats
  trace->op("autograd::engine::evaluate_function: AddmmBackward0", at + 3000, at + 3200, {.number = number + 2});
  trace->block(64, at + 3050, at + 10000 + script.clear_at + 10);  // of weight 2: 2 * 8 floats
  trace->op("autograd::engine::evaluate_function: ReluBackward0", at + 3300, at + 3400, {.number = number + 1});
  trace->op("autograd::engine::evaluate_function: AddmmBackward0", at + 3600, at + 3800, {.number = number});
  trace->block(128, at + 3650, at + 10000 + script.clear_at + 20);  // of weight 1: 8 * 4 floats
  trace->annotation(std::string("Optimizer.step#") + script.optimizer + ".step", at + 5000, at + 6000);
  if (script.state_bytes > 0 && i == 1) trace->block(script.state_bytes, at + 5100);
}

Sequence run(const Script& script) {
  HandMadeTrace trace;
  for (int64_t i = 1; i <= 2; ++i) add_iteration(&trace, i, script);
  const ProfileFacts facts = trace.facts();
  Sequence sequence = traced_sequence(facts);
  assign_roles(facts, &sequence);
  OrchestrateOptions options;
  options.method = "dnnmem";
  apply_rules(facts, options, &sequence);
  return sequence;
}

// Always alive: weights 128 + 64, batch 32.
constexpr int64_t kContextBytes = 128 + 64 + 32;

TEST(DnnMem, TensorsLiveUntilTheirLastUseOnTheGraph) {
  const Sequence sequence = run({});
  // After the first linear: its output 64, which relu_ changes in place. (Its scratch is not the output of a node.)
  EXPECT_EQ(live_bytes(sequence, 11450), kContextBytes + 64);
  // The output of the second linear, 16, has no use on this graph and is freed at once, so the peak is the same.
  EXPECT_EQ(live_bytes(sequence, 12500), kContextBytes + 64);
  // Backward, in the opposite order:
  //   linear 2  needs 64; makes the gradient of relu_'s output 64 and of weight 2 64    64 + 64 + 64 = 192
  //   relu_     needs 64; makes the gradient of linear 1's output 64               64 + 64 + 64 + 64 = 256
  //   linear 1  64 and the first gradient are gone; makes weight 1's 128                64 + 64 + 128 = 256
  EXPECT_EQ(peak_bytes(sequence), kContextBytes + 256);
  // At the end only the gradients of the weights are alive.
  EXPECT_EQ(live_bytes(sequence, 99999), kContextBytes + 64 + 128);
}

TEST(DnnMem, KnowsNothingOfHowAScriptRuns) {
  const int64_t plain = peak_bytes(run({}));
  EXPECT_EQ(peak_bytes(run({.optimizer = "Adam", .state_bytes = 384})), plain);
  EXPECT_EQ(peak_bytes(run({.clear_at = 6500})), plain);
  EXPECT_EQ(peak_bytes(run({.activation_until = 9000})), plain);
}

TEST(DnnMem, NoBackwardNoGraph) {
  HandMadeTrace trace;
  trace.module("Net_0", 1000, 2000);
  trace.op("aten::linear", 1100, 1200, {.dims = "[[2, 4], [8, 4]]", .types = kTwoTensors});
  trace.block(64, 1150);
  const ProfileFacts facts = trace.facts();
  Sequence sequence = traced_sequence(facts);
  OrchestrateOptions options;
  options.method = "dnnmem";
  apply_rules(facts, options, &sequence);
  EXPECT_EQ(peak_bytes(sequence), 0);
}

}  // namespace
}  // namespace gpucast

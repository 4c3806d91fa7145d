#include <gtest/gtest.h>

#include <numeric>

#include "src/attribution/attribute.h"
#include "src/attribution/test_program.h"

namespace gpucast {
namespace {

struct Result {
  Lifetimes lifetimes;
  Attribution attribution;
  Problems problems;
};

Result attribute_program(const Program& program) {
  Result result;
  result.lifetimes = follow_blocks(program.trace.events, AllocConf(), &result.problems);
  result.attribution = attribute(program.trace, result.lifetimes, &result.problems);
  return result;
}

void expect_totals_match(const Result& result) {
  for (uint32_t event = 0; event < result.lifetimes.allocated.size(); ++event) {
    const CategoryBytes bytes = categories_after(result.lifetimes, result.attribution, event);
    ASSERT_EQ(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), result.lifetimes.allocated[event]) << "after event " << event;
  }
  // Spans cover the history without gaps.
  uint32_t at = 0;
  for (const Span& span : result.attribution.spans) {
    ASSERT_EQ(span.begin, at);
    at = span.end;
  }
  ASSERT_EQ(at, result.lifetimes.allocated.size());
}

const BlockAttribution& block(const Result& result, const Program& program, const std::string& name, size_t nth = 0) {
  for (size_t i = 0; i < result.lifetimes.blocks.size(); ++i) {
    if (result.lifetimes.blocks[i].address == program.at.at(name) && nth-- == 0) return result.attribution.blocks[i];
  }
  ADD_FAILURE() << "no block " << name;
  static BlockAttribution none;
  return none;
}

TEST(Attribution, EveryBlockOfATrainingStepHasItsCategory) {
  const Program p = training_step();
  const Result r = attribute_program(p);
  expect_totals_match(r);
  EXPECT_EQ(block(r, p, "weight").category, Category::parameters);
  EXPECT_EQ(block(r, p, "weight").phase, Phase::model_to_device);
  EXPECT_EQ(block(r, p, "weight").step, 0);
  EXPECT_EQ(block(r, p, "weight").module, ModuleId(2));
  EXPECT_EQ(block(r, p, "running_mean").category, Category::buffers);
  EXPECT_EQ(block(r, p, "batch").category, Category::inputs);
  EXPECT_EQ(block(r, p, "batch").phase, Phase::data);
  EXPECT_EQ(block(r, p, "batch").step, 1);
  EXPECT_EQ(block(r, p, "scratch").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "cublas").category, Category::workspaces);
  EXPECT_EQ(block(r, p, "hidden").category, Category::activations);
  EXPECT_EQ(block(r, p, "hidden").module, ModuleId(2));
  EXPECT_EQ(block(r, p, "short").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "short").module, ModuleId(3));
  EXPECT_EQ(block(r, p, "loss").category, Category::activations);
  EXPECT_EQ(block(r, p, "loss").phase, Phase::loss);
  EXPECT_EQ(block(r, p, "grad_of_hidden").category, Category::intermediate_gradients);
  EXPECT_EQ(block(r, p, "grad_of_hidden").module, ModuleId(3));
  EXPECT_EQ(block(r, p, "grad").category, Category::gradients);
  EXPECT_EQ(block(r, p, "grad").module, ModuleId(2));
  EXPECT_EQ(block(r, p, "exp_avg").category, Category::optimizer_state);
  EXPECT_EQ(block(r, p, "update").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "update").step, 1);
  EXPECT_EQ(block(r, p, "kept").category, Category::unattributed);
  EXPECT_EQ(block(r, p, "kept").phase, Phase::data);
  EXPECT_EQ(block(r, p, "kept").step, 2);
  EXPECT_EQ(r.attribution.steps_completed, 1);
  EXPECT_EQ(r.problems[Problem::phase_unbalanced].count, 0);
  EXPECT_EQ(r.problems[Problem::mark_misplaced].count, 0);
  EXPECT_EQ(r.problems[Problem::tensor_without_block].count, 0);
}

TEST(Attribution, StepOneBeginsWithItsFirstInput) {
  Program p;
  p.begin(MarkedPhase::model_to_device);
  p.alloc("weight", 4 * kMiB);
  p.end(MarkedPhase::model_to_device);
  p.alloc("average", 4 * kMiB);  // a copy of the model
  p.alloc("batch", 3 * kMiB);
  p.copy_to("batch");
  p.begin(MarkedPhase::forward);
  p.alloc("hidden", kMiB);
  p.end(MarkedPhase::forward);
  const Result r = attribute_program(p);
  expect_totals_match(r);
  EXPECT_EQ(block(r, p, "average").step, 0);
  EXPECT_EQ(block(r, p, "batch").step, 1);
  EXPECT_EQ(block(r, p, "hidden").step, 1);
}

TEST(Attribution, CategoriesAtThePeakByHand) {
  const Program p = training_step();
  const Result r = attribute_program(p);
  // Peak: after "grad" in backward. weight 4, running_mean 512 B, batch 3, cublas 8, hidden 6, loss 512 B, grad_of_hidden 6, grad 4.
  EXPECT_EQ(r.lifetimes.peak_allocated.bytes, 31 * kMiB + 1024);
  const CategoryBytes bytes = categories_after(r.lifetimes, r.attribution, r.lifetimes.peak_allocated.event);
  const auto of = [&](Category category) { return bytes[static_cast<size_t>(category)]; };
  EXPECT_EQ(of(Category::parameters), 4 * kMiB);
  EXPECT_EQ(of(Category::buffers), 512);
  EXPECT_EQ(of(Category::inputs), 3 * kMiB);
  EXPECT_EQ(of(Category::workspaces), 8 * kMiB);
  EXPECT_EQ(of(Category::activations), 6 * kMiB + 512);
  EXPECT_EQ(of(Category::intermediate_gradients), 6 * kMiB);
  EXPECT_EQ(of(Category::temporaries), 0);
  EXPECT_EQ(of(Category::gradients), 4 * kMiB);
  EXPECT_EQ(of(Category::optimizer_state), 0);
  EXPECT_EQ(of(Category::unattributed), 0);
}

TEST(Attribution, ATensorMarkHoldsForItsBlockOnlyNotForTheAddress) {
  Program p;
  p.begin(MarkedPhase::backward);
  p.alloc("grad", 4 * kMiB);
  p.end(MarkedPhase::backward);
  p.tensor(TensorKind::gradient, "grad");
  p.free("grad");
  p.begin(MarkedPhase::forward);
  p.alloc_again("other", "grad");
  p.end(MarkedPhase::forward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "grad", 0).category, Category::gradients);
  EXPECT_EQ(block(r, p, "grad", 1).category, Category::temporaries);
}

TEST(Attribution, TensorsInsideAFlatBufferNameIt) {
  Program p;
  p.alloc("flat", 4 * kMiB);
  p.tensor(TensorKind::parameter, "flat", -1, 3 * kMiB);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "flat").category, Category::parameters);
}

TEST(Attribution, WorkspacesAreFoundByTheirWindow) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("scratch", 4 * kMiB);
  p.workspace("scratch");
  p.free("scratch");
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.alloc_again("tensor", "scratch");  // same place and size, later
  p.free("tensor");
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "scratch", 0).category, Category::workspaces);
  EXPECT_EQ(block(r, p, "scratch", 1).category, Category::temporaries);
}

TEST(Attribution, ALibraryMayUseAPartOfAWorkspace) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("shared", 8 * kMiB);
  p.workspace("shared", kMiB);
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "shared").category, Category::workspaces);
}

TEST(Attribution, CopiesInForwardAreNotInputs) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("mask", 4 * kMiB);
  p.copy_to("mask");
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "mask").category, Category::activations);
}

TEST(Attribution, RecomputedActivationsBelongToBackward) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("checkpoint", 2 * kMiB);
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.begin(MarkedPhase::forward);
  p.alloc("again", 4 * kMiB);
  p.alloc("short", 4 * kMiB);
  p.free("short");
  p.end(MarkedPhase::forward);
  p.free("again");
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  expect_totals_match(r);
  EXPECT_EQ(block(r, p, "checkpoint").category, Category::activations);
  EXPECT_EQ(block(r, p, "again").category, Category::activations);
  EXPECT_EQ(block(r, p, "again").phase, Phase::backward);
  EXPECT_EQ(block(r, p, "short").category, Category::temporaries);
}

TEST(Attribution, WithoutBackwardWhatForwardLeavesIsActivations) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.alloc("short", 2 * kMiB);
  p.free("short");
  p.alloc("output", 2 * kMiB);
  p.end(MarkedPhase::forward);
  p.alloc("after", 2 * kMiB);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "short").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "output").category, Category::activations);
  EXPECT_EQ(block(r, p, "after").phase, Phase::other);
}

TEST(Attribution, ARunThatDiedBeforeBackwardHadActivationsToo) {
  Program p;
  p.trace.end.reason = "exception";
  p.begin(MarkedPhase::forward);
  p.alloc("hidden", 2 * kMiB);
  p.end(MarkedPhase::forward);
  p.alloc("loss", kMiB);
  p.trace.events.push_back({EventKind::oom, StackId(), 0, 5 * kMiB, 0, 0});
  p.free("loss");  // the stack is unwound
  p.mark(MarkKind::exception);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "hidden").category, Category::activations);
  EXPECT_EQ(block(r, p, "loss").category, Category::activations);
  EXPECT_EQ(block(r, p, "loss").phase, Phase::loss);
}

TEST(Attribution, AnExceptionClosesWhatIsOpen) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.mark(MarkKind::module_begin, MarkedPhase::unknown, 2);
  p.alloc("a", kMiB);
  p.mark(MarkKind::exception);
  p.alloc("b", kMiB);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "a").phase, Phase::forward);
  EXPECT_EQ(block(r, p, "b").phase, Phase::other);
  EXPECT_FALSE(block(r, p, "b").module.valid());
}

TEST(Attribution, WhatANodeHandsToAnotherIsAnIntermediateGradient) {
  Program p;
  p.begin(MarkedPhase::backward);
  p.alloc("root", kMiB);  // the gradient of the loss
  p.node("MulBackward0", 2);
  p.alloc("scratch", kMiB);
  p.alloc("out", kMiB);
  p.free("scratch");
  p.node("AddmmBackward0", 3);
  p.free("root");
  p.alloc("last", kMiB);
  p.end(MarkedPhase::backward);
  p.free("out");
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "root").category, Category::intermediate_gradients);
  EXPECT_EQ(block(r, p, "out").category, Category::intermediate_gradients);
  EXPECT_EQ(block(r, p, "scratch").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "last").category, Category::intermediate_gradients);
  const auto op = [&](const char* name) { return block(r, p, name).op; };
  EXPECT_FALSE(op("root").valid());
  EXPECT_EQ(r.attribution.operators[op("out").index()], "MulBackward0");
  EXPECT_EQ(r.attribution.operators[op("last").index()], "AddmmBackward0");
}

TEST(Attribution, CopiesOfParametersAreNoParameters) {
  Program p;
  p.alloc("average", 4 * kMiB);
  p.begin(MarkedPhase::evaluation);
  p.tensor(TensorKind::parameter, "average");  // it is evaluated
  p.end(MarkedPhase::evaluation);
  p.tensor(TensorKind::parameter_copy, "average");
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "average").category, Category::parameter_copies);
}

TEST(Attribution, AnEvaluationIsAPhaseOfItsOwn) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  p.end(MarkedPhase::backward);
  p.begin(MarkedPhase::evaluation);
  p.alloc("logits", 4 * kMiB);
  p.alloc("hidden", 4 * kMiB);
  p.free("hidden");
  p.end(MarkedPhase::evaluation);
  p.alloc("correct", 4 * kMiB);
  p.begin(MarkedPhase::forward);
  p.end(MarkedPhase::forward);
  const Result r = attribute_program(p);
  expect_totals_match(r);
  EXPECT_EQ(block(r, p, "logits").phase, Phase::evaluation);
  EXPECT_EQ(block(r, p, "logits").category, Category::activations);
  EXPECT_EQ(block(r, p, "hidden").category, Category::temporaries);
  EXPECT_EQ(block(r, p, "correct").phase, Phase::evaluation);
}

TEST(Attribution, ATeachersForwardLeavesTheLossALoss) {
  Program p;
  p.begin(MarkedPhase::forward);
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::evaluation);
  p.alloc("teacher", 4 * kMiB);
  p.end(MarkedPhase::evaluation);
  p.alloc("loss", 4 * kMiB);
  p.begin(MarkedPhase::backward);
  p.end(MarkedPhase::backward);
  const Result r = attribute_program(p);
  EXPECT_EQ(block(r, p, "teacher").phase, Phase::evaluation);
  EXPECT_EQ(block(r, p, "loss").phase, Phase::loss);
  EXPECT_EQ(block(r, p, "loss").category, Category::activations);
}

TEST(Attribution, BuffersOfParallelTrainingAreToldByTheCodeThatAllocates) {
  Program p;
  using Frames = std::vector<std::pair<std::string, std::string>>;
  const std::pair<Frames, Category> kCases[] = {
      {{{"/x/torch/nn/parallel/distributed.py", "_ddp_init_helper"}, {"/home/me/train.py", "main"}}, Category::communication},
      {{{"/x/torch/_tensor.py", "new"}, {"/x/torch/utils/_contextlib.py", "inner"}, {"/x/torch/distributed/utils.py", "_alloc_storage"}},
       Category::communication},
      {{{"/x/deepspeed/runtime/zero/stage3.py", "step"}}, Category::communication},
      {{{"/x/torch/nn/functional.py", "linear"}, {"/x/torch/nn/parallel/distributed.py", "_pre_forward"}}, Category::temporaries},
      {{{"/x/torch/nn/parallel/distributed.py", "forward"}}, Category::temporaries},
      {{{"??", "c10::something"}}, Category::temporaries},
  };
  p.begin(MarkedPhase::forward);
  for (size_t i = 0; i < std::size(kCases); ++i) p.alloc("b" + std::to_string(i), kMiB, p.stack(kCases[i].first));
  for (size_t i = 0; i < std::size(kCases); ++i) p.free("b" + std::to_string(i));
  p.end(MarkedPhase::forward);
  const Result r = attribute_program(p);
  for (size_t i = 0; i < std::size(kCases); ++i) EXPECT_EQ(block(r, p, "b" + std::to_string(i)).category, kCases[i].second) << i;
}

TEST(Attribution, OperatorsAreNamedByTheStackWhereNoNodeWorks) {
  Program p;
  using Frames = std::vector<std::pair<std::string, std::string>>;
  const std::pair<Frames, std::string> kCases[] = {
      {{{"/x/torch/nn/functional.py", "relu"}, {"/home/me/train.py", "main"}}, "nn.functional.relu"},
      {{{"/x/torch/nn/modules/conv.py", "_conv_forward"}, {"/x/torch/nn/modules/module.py", "_call_impl"}}, "nn.modules.conv"},
      {{{"/x/torch/optim/adamw.py", "_multi_tensor_adamw"}}, "optim.adamw"},
      {{{"/x/torch/_tensor.py", "new"}, {"/home/me/train.py", "main"}}, "train.py:7 main"},
      {{{"/x/site-packages/transformers/models/a.py", "forward"}}, "transformers/models/a.py:7 forward"},
      {{{"??", "aten::empty"}, {"??", "aten::conv2d"}, {"torch/nn/modules/conv.py", "forward"}}, "aten::conv2d"},
      {{{"??", "c10::something"}, {"<frozen runpy>", "run"}}, ""},
  };
  for (size_t i = 0; i < std::size(kCases); ++i) p.alloc("b" + std::to_string(i), kMiB, p.stack(kCases[i].first));
  const Result r = attribute_program(p);
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const OperatorId op = block(r, p, "b" + std::to_string(i)).op;
    const std::string name = op.valid() ? r.attribution.operators[op.index()] : "";
    if (i == 1) {
      EXPECT_EQ(name, "nn.conv._conv_forward");  // outside of modules: the file and function
    } else {
      EXPECT_EQ(name, kCases[i].second);
    }
  }
}

TEST(Attribution, OfATensorTheBlockKnowsItsName) {
  const Program p = training_step();
  const Result r = attribute_program(p);
  const TensorId id = block(r, p, "grad").tensor;
  ASSERT_TRUE(id.valid());
  EXPECT_EQ(p.trace.strings.text(p.trace.tensors[id.index()].name), "grad");
  EXPECT_FALSE(block(r, p, "hidden").tensor.valid());
}

// For any marks, no block is lost and none counts twice.
TEST(Attribution, TotalsMatchForRandomPrograms) {
  for (unsigned seed = 0; seed < 50; ++seed) expect_totals_match(attribute_program(random_program(seed)));
}

}  // namespace
}  // namespace gpucast

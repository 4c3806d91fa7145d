// Each rule on a trace of a few events, with the sums done by hand.

#include "src/orchestrate/rules.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"
#include "src/orchestrate/hand_made_trace.h"
#include "src/orchestrate/optimizers.h"
#include "src/orchestrate/roles.h"

namespace gpucast {
namespace {

using Rules = void (*)(const ProfileFacts&, const OrchestrateOptions&, Sequence*);

Sequence apply(const ProfileFacts& facts, std::initializer_list<Rules> rules, const OrchestrateOptions& options = {}) {
  Sequence sequence = traced_sequence(facts);
  assign_roles(facts, &sequence);
  for (const Rules rule : rules) rule(facts, options, &sequence);
  return sequence;
}

// Sizes of the kept blocks, in the list's order.
std::vector<int64_t> kept(const Sequence& sequence) {
  std::vector<int64_t> out;
  for (const GpuBlock& block : sequence.blocks) {
    if (block.kept()) out.push_back(block.size_bytes);
  }
  return out;
}

// One step: forward 100 to 200, backward 300 to 400, the optimizer's step 500 to 600.
void one_step(HandMadeTrace* trace, std::string_view optimizer = "Optimizer.step#Adam.step") {
  trace->module("Linear_0", 100, 200);
  trace->op("aten::relu", 150, 160, {0, "[[4, 8]]", "[\"float\"]"});
  trace->op("autograd::engine::evaluate_function: ReluBackward0", 300, 400, {0});
  trace->annotation(optimizer, 500, 600);
}

TEST(HostRule, WhatIsMadeBeforeTheLoopStaysOnTheHostUnlessTheModelHasIt) {
  HandMadeTrace trace;
  trace.op("aten::empty", 10, 20);
  trace.block(1024, 15);     // as large as the gradient below: a parameter
  trace.block(2000000, 16);  // the data set
  trace.block(512, 17, 18);  // a temporary of an initializer
  one_step(&trace);
  trace.block(1024, 350);  // the gradient
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data})), (std::vector<int64_t>{1024, 1024}));
}

TEST(HostRule, OfTheDataLoaderWhatForwardGetsIsKept) {
  HandMadeTrace trace;
  trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50, 60);
  trace.block(300, 52, 55);    // a sample
  trace.block(1200, 56, 450);  // the batch
  one_step(&trace);
  const Sequence sequence = apply(trace.facts(), {drop_host_data, place_batch});
  ASSERT_EQ(kept(sequence), (std::vector<int64_t>{1200}));
  EXPECT_EQ(sequence.blocks[1].role, Role::input);
  EXPECT_EQ(sequence.blocks[1].alloc.time_ns, 60);
}

TEST(HostRule, WithMarksOnlyTheCopyToTheDeviceIsTheDevices) {
  HandMadeTrace trace;
  trace.annotation("gpucast.to_device#module", 20, 30);
  trace.block(64, 10);  // the parameter on the host
  trace.block(64, 25);  // its copy
  trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50, 60);
  trace.block(1200, 56, 96);
  trace.annotation("gpucast.to_device#tensor", 90, 95);
  trace.block(1200, 92, 450);
  one_step(&trace);
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data})), (std::vector<int64_t>{64, 1200}));
}

TEST(HostRule, NumbersThatAnOperatorWrapsAreNotTheDevices) {
  HandMadeTrace trace;
  one_step(&trace);
  trace.block(8, 152, 155);
  trace.block(4, 390);  // the gradient of a scalar parameter is kept
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data})), (std::vector<int64_t>{4}));
}

TEST(ModelRule, ATraceWithoutTheModelGetsItFromItsGradients) {
  HandMadeTrace trace;
  one_step(&trace);
  trace.block(4096, 310);  // backward: the last layer first
  trace.block(1024, 320);
  const Sequence sequence = apply(trace.facts(), {drop_host_data, place_model});
  // Both gradients, then the parameters in the opposite order, then two tensors of state for each (Adam).
  EXPECT_EQ(kept(sequence), (std::vector<int64_t>{4096, 1024, 1024, 4096, 1024, 1024, 4096, 4096}));
  EXPECT_EQ(sequence.blocks[2].role, Role::parameter);
  EXPECT_LT(sequence.blocks[3].alloc, Moment({0, 0}));
}

TEST(ModelRule, TheOptimizersLoopSaysTheOrderOfParameters) {
  HandMadeTrace trace;
  one_step(&trace);
  trace.block(4096, 310);
  trace.block(1024, 320);
  trace.block(4096, 510);  // state
  trace.op("aten::addcdiv_", 520, 530, {-1, "[[1024], [1024], [1024], []]", "[\"float\", \"float\", \"float\", \"Scalar\"]"});
  trace.op("aten::addcdiv_", 540, 550, {-1, "[[256], [256], [256], []]", "[\"float\", \"float\", \"float\", \"Scalar\"]"});
  const Sequence sequence = apply(trace.facts(), {drop_host_data, place_model});
  EXPECT_EQ(kept(sequence), (std::vector<int64_t>{4096, 1024, 4096, 4096, 1024}));
}

TEST(GradientRule, AGradientLivesUntilZeroGrad) {
  HandMadeTrace trace;
  one_step(&trace);
  trace.block(4096, 310, 650);
  trace.annotation("Optimizer.zero_grad#Adam.zero_grad", 700, 710);
  const Sequence sequence = apply(trace.facts(), {drop_host_data, place_gradients});
  EXPECT_EQ(sequence.blocks[0].free.time_ns, 700);
}

TEST(KernelScratchRule, AKernelsOwnAndNothingElse) {
  HandMadeTrace trace;
  trace.module("Conv2d_0", 100, 200);
  trace.op("aten::conv2d", 110, 190);
  trace.op("aten::mkldnn_convolution", 120, 180);
  trace.op("aten::empty", 130, 135);
  trace.block(1000, 131, 170);  // a reordered weight
  trace.block(3000, 140, 450);  // the result
  trace.block(2000, 115, 189);  // made by conv2d, which runs another operator: a temporary on CUDA too
  trace.op("autograd::engine::evaluate_function: ConvolutionBackward0", 300, 400, {0});
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data, drop_kernel_scratch})), (std::vector<int64_t>{2000, 3000}));
}

TEST(ForeachRule, TheLoopsTemporariesBecomeAListForAllParameters) {
  HandMadeTrace trace;
  one_step(&trace);
  for (int parameter = 0; parameter < 2; ++parameter) {
    const int64_t at = 510 + parameter * 40;
    trace.op("aten::sqrt", at, at + 5);
    trace.block(4096, at + 1, at + 20);
    trace.op("aten::addcdiv_", at + 10, at + 15, {-1, parameter == 0 ? "[[1024]]" : "[[256]]", "[\"float\"]"});
  }
  const Sequence sequence = apply(trace.facts(), {drop_host_data, use_foreach});
  ASSERT_EQ(kept(sequence), (std::vector<int64_t>{4096, 1024}));  // 1024 and 256 floats
  // All are alive at once, and are freed from the end of the list.
  EXPECT_LT(sequence.blocks[3].alloc, sequence.blocks[2].free);
  EXPECT_LT(sequence.blocks[3].free, sequence.blocks[2].free);
}

TEST(ForeachRule, AnUnknownOptimizerIsLeftAsItIs) {
  HandMadeTrace trace;
  one_step(&trace, "Optimizer.step#Lion.step");
  trace.op("aten::sign", 510, 520);
  trace.block(4096, 511, 530);
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data, use_foreach})), (std::vector<int64_t>{4096}));
}

TEST(DropoutRule, TheMaskIsOneByteAnElement) {
  HandMadeTrace trace;
  trace.module("Dropout_0", 100, 200);
  trace.op("aten::dropout", 110, 190, {0, "[[4, 100], [], []]", "[\"float\", \"Scalar\", \"Scalar\"]"});
  trace.op("aten::empty_like", 120, 130);
  trace.block(1600, 125, 350);
  trace.op("aten::mul", 140, 150);
  trace.block(1600, 145, 390);
  trace.op("autograd::engine::evaluate_function: MulBackward0", 300, 400, {0});
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data, use_cuda_dropout})), (std::vector<int64_t>{400, 1600}));
}

TEST(CublasRule, OneWorkspaceAThreadAndOneACallWithABias) {
  HandMadeTrace trace;
  one_step(&trace);
  trace.op("aten::addmm", 110, 120, {0, "[[8], [4, 16], [16, 8], [], []]", "[\"float\", \"float\", \"float\", \"Scalar\", \"Scalar\"]"});
  trace.op("aten::mm", 130, 140, {0, "[[4, 16], [16, 8]]", "[\"float\", \"float\"]"});
  trace.op("aten::mm", 310, 320, {0, "[[4, 16], [16, 8]]", "[\"float\", \"float\"]"});
  constexpr int64_t kKiB = 1024;
  // The handle of forward and the call's own workspace, then the handle of autograd's thread.
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data, add_cublas_workspaces})),
            (std::vector<int64_t>{8320 * kKiB, 1024 * kKiB, 8320 * kKiB}));
}

TEST(ReductionRule, BuffersAsOnTheVirtualGpu) {
  // torch 2.6.0, rtx3060: the memory that x.sum(0) of zeros(rows, columns) allocated in addition to its result.
  const Gpu gpu = find_gpu("rtx3060");
  const int64_t seen[][4] = {{1024, 768, 6291456, 24},  {1764, 384, 5505024, 12},  {512, 768, 0, 0},           {1024, 3072, 22020096, 96},
                             {2048, 768, 12582912, 24}, {4096, 768, 22020096, 24}, {16384, 768, 22020096, 24}, {300, 768, 0, 0},
                             {1024, 50257, 0, 0},       {1024, 64, 0, 0},          {1024, 1000, 8192000, 32},  {4096, 10, 0, 0},
                             {1024, 1025, 0, 0}};
  for (const auto& [rows, columns, bytes, counters] : seen) {
    int64_t semaphores = 0;
    EXPECT_EQ(sum_buffer_bytes(gpu, rows, columns, 4, &semaphores), bytes) << rows << " x " << columns;
    EXPECT_EQ(semaphores, counters) << rows << " x " << columns;
  }
}

TEST(BatchSizeRule, BlocksOfTheBatchGrowAndOthersDoNot) {
  HandMadeTrace trace;
  trace.block(7 * 16, 15);  // a parameter whose size the batch divides
  one_step(&trace);
  trace.block(7 * 100, 155, 350);  // an activation
  trace.block(30, 156, 350);       // the batch does not divide its size
  trace.block(7 * 16, 320);        // the parameter's gradient
  OrchestrateOptions options;
  options.traced_batch_size = 7;
  options.batch_size = 70;
  EXPECT_EQ(kept(apply(trace.facts(), {drop_host_data, scale_batch}, options)), (std::vector<int64_t>{7 * 16, 7000, 30, 7 * 16}));
}

TEST(AttentionRule, OutputAndLogsumexpTakeThePlaceOfTheProducts) {
  HandMadeTrace trace;
  trace.module("Attention_0", 100, 200);
  const char* dims = "[[2, 4, 40, 16], [2, 4, 40, 16], [2, 4, 40, 16], [], [], [], [], []]";
  trace.op("aten::scaled_dot_product_attention", 110, 190, {5, dims, "[\"float\", \"float\", \"float\", \"\", \"\", \"\", \"\", \"\"]"});
  trace.op("aten::bmm", 120, 130, {6});
  constexpr int64_t kProduct = 2 * 4 * 40 * 40 * 4, kOutput = 2 * 4 * 40 * 16 * 4;
  trace.block(kProduct, 125, 350);
  trace.op("aten::bmm", 140, 150, {7});
  trace.block(kOutput, 145, 380);
  trace.op("aten::relu", 195, 198, {8});
  trace.op("autograd::engine::evaluate_function: ReluBackward0", 300, 310, {8});
  trace.op("autograd::engine::evaluate_function: BmmBackward0", 320, 330, {7});
  trace.op("autograd::engine::evaluate_function: BmmBackward0", 340, 350, {6});
  trace.annotation("Optimizer.step#Adam.step", 500, 600);
  const Sequence sequence = apply(trace.facts(), {drop_host_data, use_cuda_attention});
  // In forward: the output, and 4 bytes for each of 2 * 4 heads and 40 queries rounded up to 64.
  EXPECT_EQ(live_bytes(sequence, 250), kOutput + 2 * 4 * 64 * 4);
  // In backward: three gradients, product, sum twice, then scratch of one tile of 64 by 64.
  EXPECT_EQ(sequence.blocks[0].fate, Fate::other_kernel);
  const std::vector<int64_t> bytes = kept(sequence);
  EXPECT_EQ(bytes.back(), 2 * 4 * (64 * 64 * 4 + 16));
}

TEST(Rules, AnUnknownNameIsRefusedWithTheNearest) {
  HandMadeTrace trace;
  one_step(&trace);
  trace.block(1, 150);
  const ProfileFacts facts = trace.facts();
  Sequence sequence = traced_sequence(facts);
  OrchestrateOptions options;
  options.without = {"foreech"};
  try {
    apply_rules(facts, options, &sequence);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"foreach\"?"), std::string::npos) << error.what();
  }
}

TEST(Metadata, WhatCannotBeReadIsSaid) {
  EXPECT_FALSE(read_metadata("{\"torch\": ").readable);
  EXPECT_TRUE(read_metadata("").readable);
  const ProfileMetadata metadata = read_metadata(R"({"torch": "2.6.0", "batch_size": 4, "tables": [{"when": "forward", "step": 1,
      "rows": [["parameter", "weight", 4096, 64, "float32", [16], true], ["odd"]]}], "optimizers": [{"name": "SGD",
      "param_groups": [{"momentum": 0.9, "foreach": null, "fused": false}]}]})");
  ASSERT_EQ(metadata.tables.size(), 1u);
  ASSERT_EQ(metadata.tables[0].rows.size(), 1u);
  EXPECT_EQ(metadata.tables[0].rows[0].role, Role::parameter);
  EXPECT_EQ(metadata.batch_size, 4);
  ASSERT_EQ(metadata.optimizers.size(), 1u);
  EXPECT_EQ(metadata.optimizers[0].foreach, std::nullopt);
  EXPECT_EQ(metadata.optimizers[0].fused, false);
  EXPECT_EQ(state_tensors(metadata.optimizers[0]), 1);
}

}  // namespace
}  // namespace gpucast

#include "src/orchestrate/trace_from_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/predict.h"

namespace gpucast {
namespace {

void add_span(ProfileTrace* trace, SpanKind kind, const char* name, int64_t begin_ns, int64_t end_ns, int64_t number = -1) {
  ProfileSpan span;
  span.kind = kind;
  span.name = trace->strings.intern(name);
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  span.sequence_number = number;
  trace->spans.push_back(span);
}

// Three steps, with blocks of any size, at any time, freed or not.
ProfileTrace random_trace(std::mt19937* random) {
  ProfileTrace trace;
  trace.path = "random.json";
  trace.threads.resize(1);
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t at = 1000 + step * 10000;
    add_span(&trace, SpanKind::annotation, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 500);
    add_span(&trace, SpanKind::module, "Net_0", at + 1000, at + 4000);
    add_span(&trace, SpanKind::op, "aten::addmm", at + 1500, at + 2000, step * 10);
    add_span(&trace, SpanKind::op, "aten::empty", at + 1600, at + 1700);
    add_span(&trace, SpanKind::op, "autograd::engine::evaluate_function: AddmmBackward0", at + 5000, at + 6000, step * 10);
    add_span(&trace, SpanKind::annotation, "Optimizer.step#Adam.step", at + 7000, at + 8000);
    add_span(&trace, SpanKind::annotation, "Optimizer.zero_grad#Adam.zero_grad", at + 8500, at + 8600);
  }
  std::vector<uint64_t> live;
  for (int i = 0; i < 400; ++i) {
    ProfileMemory event;
    event.time_ns = int64_t{i} * 80;
    const bool frees = !live.empty() && (*random)() % 2 == 0;
    if (frees) {
      std::swap(live[(*random)() % live.size()], live.back());
      event.address = live.back();
      live.pop_back();
      for (const ProfileMemory& before : trace.memory) {
        if (before.address == event.address) event.bytes = -before.bytes;
      }
    } else {
      event.address = 4096 * static_cast<uint64_t>(i + 1);
      event.bytes = static_cast<int64_t>(1 + (*random)() % 3000000);
      if ((*random)() % 20 == 0) event.bytes = -event.bytes;  // frees a block from before the trace
      if (event.bytes > 0) live.push_back(event.address);
    }
    trace.memory.push_back(event);
  }
  return trace;
}

TEST(TraceFromProfile, PropertyEveryTracedByteHasOneFateAndTheReportAddsUp) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    for (const char* method : {"gpucast", "xmem", "veritasest", "dnnmem"}) {
      ProfileTrace profile = random_trace(&random);
      int64_t bytes = 0;  // bytes that the trace allocates, and bytes that it frees without having allocated them
      const ProfileBlocks blocks = pair_blocks(profile.memory, 0);
      for (const ProfileBlock& block : blocks.blocks) bytes += block.size_bytes;
      OrchestrateOptions options;
      options.method = method;
      Trace trace = trace_from_profile(std::move(profile), find_gpu("rtx3060"), options);
      ASSERT_TRUE(trace.profile.has_value());
      const ProfileSummary summary = *trace.profile;
      EXPECT_EQ(summary.bytes, bytes) << method << ", round " << round;
      int64_t fates = 0, count = 0;
      for (const ProfileBytesLine& line : summary.fates) {
        fates += line.bytes;
        count += line.blocks;
      }
      EXPECT_EQ(fates, bytes) << method << ", round " << round;
      EXPECT_EQ(count, static_cast<int64_t>(blocks.blocks.size()));
      // Throws if the categories do not add up to the peak.
      const Prediction prediction = predict(std::move(trace), std::nullopt);
      EXPECT_GE(prediction.peak_reserved.bytes, prediction.peak_allocated.bytes);
      const int64_t categories = std::accumulate(prediction.categories.begin(), prediction.categories.end(), int64_t{0},
                                                 [](int64_t sum, const CategoryLine& line) { return sum + line.bytes; });
      EXPECT_EQ(categories, prediction.peak_allocated.bytes);
    }
  }
}

struct Shown {
  MarkKind kind;
  std::string what;  // phase, module or node
  friend bool operator==(const Shown&, const Shown&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Shown& shown) {
    return out << static_cast<int>(shown.kind) << ' ' << shown.what;
  }
};

std::vector<Shown> marks_in(const Trace& trace, MarkKind first, MarkKind last) {
  std::vector<Shown> out;
  for (const Mark& mark : trace.marks) {
    if (mark.kind < first || mark.kind > last) continue;
    std::string what = mark.kind <= MarkKind::phase_end ? (mark.phase == MarkedPhase::forward ? "forward" : "backward") : "";
    if (mark.kind > MarkKind::phase_end) what = module_label(trace, mark.module);
    if (mark.kind == MarkKind::module_backward) what += (what.empty() ? "" : " ") + std::string(trace.strings.text(mark.text));
    out.push_back({mark.kind, what});
  }
  return out;
}

constexpr const char* kNode = "autograd::engine::evaluate_function: ";

void add_node(ProfileTrace* trace, const char* name, int64_t begin_ns, int64_t end_ns, int64_t number) {
  add_span(trace, SpanKind::op, (kNode + std::string(name)).c_str(), begin_ns, end_ns, number);
}

// One step of a model with two classes of the same name. The profiler numbers the calls of each separately.
ProfileTrace trace_with_modules() {
  ProfileTrace trace;
  trace.path = "trace.json";
  trace.threads.resize(1);
  trace.gpucast_json = R"({"torch": "2.6.0", "asked_device": "cuda",
      "modules": [["", "Net", -1], ["body", "Sequential", 1], ["body.0", "Block", 2], ["body.1", "Block", 2], ["head", "Linear", 1]],
      "tables": [{"when": "forward", "step": 1, "rows": [["parameter", "head.weight", 4096, 4096, "float32", [1024], true, 5],
                                                         ["buffer", "scale", 8192, 2048, "float32", [512], false, 1],
                                                         ["parameter", "lost", 16384, 2048, "float32", [512], true, 9]]}]})";
  for (const auto& [address, bytes] : {std::pair(4096, 4096), std::pair(8192, 2048), std::pair(16384, 2048)}) {
    ProfileMemory event;
    event.time_ns = 100 + address / 4096;
    event.address = static_cast<uint64_t>(address);
    event.bytes = bytes;
    trace.memory.push_back(event);
  }
  add_span(&trace, SpanKind::annotation, "gpucast.to_device#module", 50, 200);
  add_span(&trace, SpanKind::annotation, "gpucast.tensors#0", 900, 901);
  add_span(&trace, SpanKind::module, "Net_0", 1000, 4000);
  add_span(&trace, SpanKind::annotation, "gpucast.forward#1", 1010, 3990);
  add_span(&trace, SpanKind::annotation, "gpucast.module#1", 1011, 1012);
  add_span(&trace, SpanKind::op, "aten::mul", 1050, 1060, 7);
  add_span(&trace, SpanKind::module, "Block_0", 1100, 1900);
  add_span(&trace, SpanKind::annotation, "gpucast.module#4", 1101, 1102);
  add_span(&trace, SpanKind::op, "aten::addmm", 1200, 1300, 8);
  add_span(&trace, SpanKind::module, "Block_0", 2000, 2900);
  add_span(&trace, SpanKind::annotation, "gpucast.module#3", 2001, 2002);
  add_span(&trace, SpanKind::op, "aten::addmm", 2200, 2300, 10);
  add_span(&trace, SpanKind::module, "ReLU_0", 3000, 3100);
  add_span(&trace, SpanKind::annotation, "gpucast.module#5", 3001, 3002);  // a Linear
  add_span(&trace, SpanKind::module, "Tanh_0", 3200, 3300);                // without a mark
  add_span(&trace, SpanKind::annotation, "gpucast.module#6", 3301, 3302);  // a row that does not exist
  add_span(&trace, SpanKind::annotation, "gpucast.backward#1", 5000, 8000);
  add_node(&trace, "AddmmBackward0", 5100, 5200, 11);  // the second node made by the operator with number 10
  add_node(&trace, "torch::autograd::AccumulateGrad", 5200, 5300, -1);
  add_node(&trace, "CheckpointFunctionBackward", 5400, 6400, 8);
  add_span(&trace, SpanKind::op, "aten::detach", 5401, 5402, 12);
  add_span(&trace, SpanKind::module, "Block_0", 5500, 5900);
  add_span(&trace, SpanKind::annotation, "gpucast.module#4", 5501, 5502);
  add_span(&trace, SpanKind::module, "Tanh_1", 5600, 5700);
  add_span(&trace, SpanKind::op, "aten::tanh", 5610, 5620, 12);
  add_node(&trace, "TanhBackward0", 6000, 6100, 12);
  add_node(&trace, "MulBackward0", 6500, 6600, 7);
  add_span(&trace, SpanKind::annotation, "Optimizer.step#SGD.step", 8100, 8200);
  return trace;
}

TEST(TraceFromProfile, ModulesHaveTheirPathsFromTheTable) {
  const Trace trace = trace_from_profile(trace_with_modules(), find_gpu("rtx3060"), {});
  const std::vector<Shown> expected = {
      {MarkKind::phase_begin, "forward"},  // the mark of a forward lies inside the outermost module's own call
      {MarkKind::module_begin, "Net (the model)"}, {MarkKind::module_begin, "body.1 (Block)"}, {MarkKind::module_end, "body.1 (Block)"},
      {MarkKind::module_begin, "body.0 (Block)"},  {MarkKind::module_end, "body.0 (Block)"},   {MarkKind::module_begin, "ReLU_0 (ReLU)"},
      {MarkKind::module_end, "ReLU_0 (ReLU)"},     {MarkKind::module_begin, "Tanh_0 (Tanh)"},  {MarkKind::module_end, "Tanh_0 (Tanh)"},
      {MarkKind::module_end, "Net (the model)"},   {MarkKind::phase_end, "forward"},
  };
  std::vector<Shown> marks = marks_in(trace, MarkKind::phase_begin, MarkKind::module_end);
  const auto first = std::find(marks.begin(), marks.end(), expected.front());
  ASSERT_GE(marks.end() - first, static_cast<std::ptrdiff_t>(expected.size()));
  EXPECT_EQ(std::vector<Shown>(first, first + static_cast<std::ptrdiff_t>(expected.size())), expected);
  // A row that names no module of the table has no module.
  ASSERT_EQ(trace.tensors.size(), 3u);
  for (const TensorMark& tensor : trace.tensors) {
    const std::string_view name = trace.strings.text(tensor.name);
    EXPECT_EQ(module_label(trace, tensor.module), name == "head.weight" ? "head (Linear)"
                                                  : name == "scale"     ? "Net (the model)"
                                                                        : "")
        << name;
  }
}

TEST(TraceFromProfile, EveryNodeOfAutogradIsMarkedWithItsNameAndModule) {
  const Trace trace = trace_from_profile(trace_with_modules(), find_gpu("rtx3060"), {});
  EXPECT_EQ(marks_in(trace, MarkKind::module_backward, MarkKind::module_backward),
            (std::vector<Shown>{{MarkKind::module_backward, "body.0 (Block) AddmmBackward0"},
                                {MarkKind::module_backward, "body.1 (Block) CheckpointFunctionBackward"},
                                {MarkKind::module_backward, "body.1.Tanh_1 (Tanh) TanhBackward0"},
                                {MarkKind::module_backward, "Net (the model) MulBackward0"}}));
}

TEST(TraceFromProfile, WhatANodeComputesAgainIsAForward) {
  const Trace trace = trace_from_profile(trace_with_modules(), find_gpu("rtx3060"), {});
  const std::vector<Shown> marks = marks_in(trace, MarkKind::phase_begin, MarkKind::module_backward);
  const auto node = std::find(marks.begin(), marks.end(), Shown{MarkKind::module_backward, "body.1 (Block) CheckpointFunctionBackward"});
  const std::vector<Shown> expected = {{MarkKind::phase_begin, "forward"},
                                       {MarkKind::module_begin, "body.1 (Block)"},
                                       {MarkKind::module_begin, "body.1.Tanh_1 (Tanh)"},
                                       {MarkKind::module_end, "body.1.Tanh_1 (Tanh)"},
                                       {MarkKind::module_end, "body.1 (Block)"},
                                       {MarkKind::phase_end, "forward"}};
  ASSERT_GT(marks.end() - node, static_cast<std::ptrdiff_t>(expected.size()));
  EXPECT_EQ(std::vector<Shown>(node + 1, node + 1 + static_cast<std::ptrdiff_t>(expected.size())), expected);
}

TEST(TraceFromProfile, WhatTheTableDoesNotNameKeepsTheProfilersName) {
  ProfileTrace profile = trace_with_modules();
  profile.gpucast_json = R"({"torch": "2.6.0", "modules": [["", "Net", "odd"], 5], "tables": []})";
  const Trace trace = trace_from_profile(std::move(profile), find_gpu("rtx3060"), {});
  std::vector<std::string> names;
  for (size_t i = 0; i < trace.modules.size(); ++i) names.push_back(module_label(trace, ModuleId(static_cast<int64_t>(i))));
  // The two rows, and all calls without a row under the profiler's names. A call inside an autograd node has no parent.
  EXPECT_EQ(names, (std::vector<std::string>{"Net (the model)", "the model", "Block_0 (Block)", "ReLU_0 (ReLU)", "Tanh_0 (Tanh)",
                                             "Block_0 (Block)", "Tanh_1 (Tanh)"}));
}

TEST(TraceFromProfile, ATraceWithoutMemoryNamesTheSwitch) {
  ProfileTrace profile;
  profile.path = "trace.json";
  try {
    trace_from_profile(std::move(profile), find_gpu("rtx3060"), {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.hint.find("profile_memory=True"), std::string::npos);
  }
}

TEST(TraceFromProfile, AnEmptyStepIsNoCrash) {
  ProfileTrace profile;
  profile.threads.resize(1);
  ProfileMemory event;
  event.address = 1;
  event.bytes = 100;
  profile.memory = {event};
  const Trace trace = trace_from_profile(std::move(profile), find_gpu("rtx3060"), {});
  EXPECT_FALSE(trace.warnings.empty());
}

}  // namespace
}  // namespace gpucast

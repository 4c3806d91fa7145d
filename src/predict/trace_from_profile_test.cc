#include "src/predict/trace_from_profile.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

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
    event.time_ns = i * 80;
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
      if ((*random)() % 20 == 0) event.bytes = -event.bytes;  // of a block from before the trace
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
      int64_t bytes = 0;  // what the trace allocates, and what it frees without having allocated it
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
      // Throws where categories do not add up to the peak.
      const Prediction prediction = predict(std::move(trace), std::nullopt);
      EXPECT_GE(prediction.peak_reserved.bytes, prediction.peak_allocated.bytes);
      const int64_t categories = std::accumulate(prediction.categories.begin(), prediction.categories.end(), int64_t{0},
                                                 [](int64_t sum, const CategoryLine& line) { return sum + line.bytes; });
      EXPECT_EQ(categories, prediction.peak_allocated.bytes);
    }
  }
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

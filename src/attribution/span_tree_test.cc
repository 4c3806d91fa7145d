#include "src/attribution/span_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace gpucast {
namespace {

ProfileTrace random_nested(std::mt19937* random, int spans) {
  ProfileTrace trace;
  trace.threads.resize(2);
  const StringId names[] = {trace.strings.intern("aten::mm"), trace.strings.intern("aten::empty")};
  // Splits intervals again and again, so that two of them are either nested or disjoint.
  struct Free {
    int64_t begin, end;
    uint32_t thread;
  };
  std::vector<Free> free = {{0, 1 << 20, 0}, {0, 1 << 20, 1}};
  for (int i = 0; i < spans && !free.empty(); ++i) {
    const size_t at = (*random)() % free.size();
    const Free inside = free[at];
    free.erase(free.begin() + static_cast<std::ptrdiff_t>(at));
    if (inside.end - inside.begin < 8) continue;
    const int64_t width = inside.end - inside.begin;
    const int64_t begin = inside.begin + static_cast<int64_t>((*random)()) % (width / 2);
    const int64_t end = begin + 2 + static_cast<int64_t>((*random)()) % (inside.end - begin - 2);
    ProfileSpan span;
    span.begin_ns = begin;
    span.end_ns = end;
    span.thread = inside.thread;
    span.name = names[(*random)() % 2];
    trace.spans.push_back(span);
    free.push_back({begin + 1, end - 1, inside.thread});
    free.push_back({inside.begin, begin - 1, inside.thread});
    free.push_back({end + 1, inside.end, inside.thread});
  }
  std::sort(trace.spans.begin(), trace.spans.end(), [](const ProfileSpan& a, const ProfileSpan& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  for (int i = 0; i < 200; ++i) {
    ProfileMemory memory;
    memory.time_ns = static_cast<int64_t>((*random)() % (1 << 20));
    memory.thread = static_cast<uint32_t>((*random)() % 2);
    memory.bytes = 1;
    trace.memory.push_back(memory);
  }
  std::sort(trace.memory.begin(), trace.memory.end(), [](const ProfileMemory& a, const ProfileMemory& b) { return a.time_ns < b.time_ns; });
  return trace;
}

// The innermost span of a thread around a time, found by checking all spans.
SpanIndex innermost(const ProfileTrace& trace, uint32_t thread, int64_t begin_ns, int64_t end_ns, SpanIndex except) {
  SpanIndex best = kNoSpan;
  for (SpanIndex i = 0; i < trace.spans.size(); ++i) {
    const ProfileSpan& span = trace.spans[i];
    if (i == except || span.thread != thread || span.begin_ns > begin_ns || span.end_ns < end_ns) continue;
    if (best == kNoSpan || span.end_ns - span.begin_ns < trace.spans[best].end_ns - trace.spans[best].begin_ns) best = i;
  }
  return best;
}

TEST(SpanTree, PropertyParentsAndMemoryAreTheInnermostSpanAround) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const ProfileTrace trace = random_nested(&random, 120);
    const SpanTree tree = build_span_tree(trace);
    for (SpanIndex i = 0; i < trace.spans.size(); ++i) {
      const ProfileSpan& span = trace.spans[i];
      ASSERT_EQ(tree.parent[i], innermost(trace, span.thread, span.begin_ns, span.end_ns, i)) << "round " << round << ", span " << i;
    }
    for (size_t i = 0; i < trace.memory.size(); ++i) {
      const ProfileMemory& memory = trace.memory[i];
      ASSERT_EQ(tree.of_memory[i], innermost(trace, memory.thread, memory.time_ns, memory.time_ns, kNoSpan))
          << "round " << round << ", event " << i << " at " << memory.time_ns;
    }
    // A span has a computing operator inside if and only if there is one below it.
    std::vector<bool> inside(trace.spans.size(), false);
    for (SpanIndex i = 0; i < trace.spans.size(); ++i) {
      if (is_plumbing(trace.strings.text(trace.spans[i].name))) continue;
      for (SpanIndex up = tree.parent[i]; up != kNoSpan; up = tree.parent[up]) inside[up] = true;
    }
    EXPECT_EQ(inside, tree.has_operator_inside);
  }
}

TEST(SpanTree, SpansThatTouchAreApart) {
  ProfileTrace trace;
  trace.threads.resize(1);
  ProfileSpan first, second;
  first.begin_ns = 0;
  first.end_ns = second.begin_ns = 10;
  second.end_ns = 20;
  trace.spans = {first, second};
  EXPECT_EQ(build_span_tree(trace).parent[1], kNoSpan);
}

TEST(SpanTree, PlumbingMakesOrMovesTensorsOnly) {
  EXPECT_TRUE(is_plumbing("aten::empty_strided"));
  EXPECT_TRUE(is_plumbing("aten::_to_copy"));
  EXPECT_FALSE(is_plumbing("aten::addmm"));
  EXPECT_FALSE(is_plumbing("autograd::engine::evaluate_function: AddmmBackward0"));
}

}  // namespace
}  // namespace gpucast

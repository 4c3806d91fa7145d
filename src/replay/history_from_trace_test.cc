#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpucast/history.h"
#include "gpucast/replay.h"
#include "gpucast/trace.h"

namespace gpucast {
namespace {

constexpr uint64_t kSegment = 0x7000'0000'0000;
constexpr int64_t kSegmentBytes = 2 << 20, kBlockBytes = 400'000;

AllocatorEvent event(EventKind kind, int64_t size_bytes) {
  AllocatorEvent made;
  made.kind = kind;
  made.address = kSegment;
  made.size_bytes = size_bytes;
  return made;
}

// A small block is allocated and freed, its segment is given back and allocated again, all without a stack: cuDNN's benchmark does this in
// autograd's own thread.
Trace given_back_and_taken_again(int64_t alloc_retries) {
  Trace trace;
  trace.header.source = "vgpu";
  for (int i = 0; i < 2; ++i) {
    if (i > 0) trace.events.push_back(event(EventKind::segment_free, kSegmentBytes));
    trace.events.push_back(event(EventKind::segment_alloc, kSegmentBytes));
    trace.events.push_back(event(EventKind::alloc, kBlockBytes));
    trace.events.push_back(event(EventKind::free_requested, kBlockBytes));
    trace.events.push_back(event(EventKind::free_completed, kBlockBytes));
  }
  trace.end.torch_stats.emplace();
  trace.end.torch_stats->alloc_retries = alloc_retries;
  return trace;
}

int64_t times_emptied(const Trace& trace) {
  const History history = history_from_trace(trace);
  return std::count_if(history.ops.begin(), history.ops.end(), [](const auto& op) { return op.kind == OpKind::empty_cache; });
}

TEST(HistoryFromTrace, WithoutRetriesMemoryIsGivenBackOnRequest) { EXPECT_EQ(times_emptied(given_back_and_taken_again(0)), 1); }

TEST(HistoryFromTrace, ARetryMayHaveGivenItBack) { EXPECT_EQ(times_emptied(given_back_and_taken_again(1)), 0); }

TEST(HistoryFromTrace, CountersThatWereResetProveNothing) {
  Trace trace = given_back_and_taken_again(0);
  trace.marks.emplace_back().kind = MarkKind::stats_reset;
  EXPECT_EQ(times_emptied(trace), 0);
}

TEST(HistoryFromTrace, GarbageIsCollectedWithoutARetry) {
  Trace trace = given_back_and_taken_again(0);
  trace.process.alloc_conf = "garbage_collection_threshold:0.8";
  EXPECT_EQ(times_emptied(trace), 0);
}

// The ops of a history of one block, after its allocation.
std::vector<OpKind> after_allocation(const std::vector<EventKind>& kinds) {
  Trace trace;
  trace.header.source = "vgpu";
  trace.events.push_back(event(EventKind::segment_alloc, kSegmentBytes));
  trace.events.push_back(event(EventKind::alloc, kBlockBytes));
  for (const EventKind kind : kinds) trace.events.push_back(event(kind, kBlockBytes));
  std::vector<OpKind> ops;
  for (const AllocOp& op : history_from_trace(trace).ops) ops.push_back(op.kind);
  EXPECT_EQ(ops.at(0), OpKind::alloc);
  ops.erase(ops.begin());
  return ops;
}

constexpr EventKind kRequested = EventKind::free_requested, kCompleted = EventKind::free_completed, kGrowth = EventKind::segment_alloc;

TEST(HistoryFromTrace, ABlockThatWaitsIsFreedInTwoSteps) {
  EXPECT_EQ(after_allocation({kRequested, kGrowth, kCompleted}), (std::vector{OpKind::free_later, OpKind::nothing, OpKind::complete}));
}

TEST(HistoryFromTrace, ABlockThatWaitsIsNotFreedAgain) {
  EXPECT_EQ(after_allocation({kRequested, kGrowth, kRequested, kCompleted}),
            (std::vector{OpKind::free_later, OpKind::nothing, OpKind::nothing, OpKind::complete}));
  EXPECT_EQ(after_allocation({kRequested, kRequested}), (std::vector{OpKind::free_later, OpKind::nothing}));
}

TEST(HistoryFromTrace, OnlyAFreeThatWasAskedForEnds) {
  EXPECT_EQ(after_allocation({kCompleted, kRequested, kCompleted}), (std::vector{OpKind::nothing, OpKind::free}));
  EXPECT_EQ(after_allocation({kRequested, kCompleted, kCompleted}), (std::vector{OpKind::free, OpKind::nothing}));
  EXPECT_EQ(after_allocation({kRequested, kCompleted, kRequested, kCompleted}), (std::vector{OpKind::free, OpKind::nothing}));
}

// The end of the first block's free is missing: a later block at its address is freed as a block of its own.
TEST(HistoryFromTrace, AFreeWithoutItsEndDoesNotTouchTheNextBlock) {
  EXPECT_EQ(after_allocation({kRequested, EventKind::alloc, kRequested, kCompleted}),
            (std::vector{OpKind::free_later, OpKind::alloc, OpKind::free}));
}

// A regression test: in the replay, a second free of a waiting block freed another block.
TEST(HistoryFromTrace, AFreeTooManyLeavesOtherBlocksAlone) {
  Trace trace;
  trace.header.source = "vgpu";
  trace.events.push_back(event(EventKind::segment_alloc, kSegmentBytes));
  for (uint64_t i = 0; i < 3; ++i) {
    trace.events.push_back(event(EventKind::alloc, kBlockBytes));
    trace.events.back().address += i * 400'384;
  }
  trace.events.push_back(event(kRequested, kBlockBytes));
  trace.events.push_back(event(kRequested, kBlockBytes));
  trace.events.push_back(event(kCompleted, kBlockBytes));
  for (const char* conf : {"", "expandable_segments:True"}) {
    ReplaySettings settings;
    settings.alloc_conf = conf;
    EXPECT_EQ(replay(history_from_trace(trace), settings).stats.allocated_bytes, 2 * 400'384) << conf;
  }
}

}  // namespace
}  // namespace gpucast

#include "src/lifetime/start_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/base/bytes.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {
namespace {

constexpr uint64_t kStartBase = 0x7f0000000000;

using State = SnapshotBlockState;

SnapshotSegment segment(uint64_t address, std::vector<SnapshotBlock> blocks, bool expandable = false) {
  SnapshotSegment out;
  out.address = address;
  out.expandable = expandable;
  out.blocks = std::move(blocks);
  for (SnapshotBlock& block : out.blocks) {
    block.address = address + static_cast<uint64_t>(out.size_bytes);
    out.size_bytes += block.size_bytes;
  }
  out.large = out.size_bytes > 2 * kMiB;
  return out;
}
SnapshotBlock block(State state, int64_t size, int64_t requested = 0) { return {0, size, requested, StackId(), state}; }
AllocatorEvent start_event(EventKind kind, uint64_t address, int64_t size) { return {kind, StackId(), address, size, 0, 0}; }

struct Undone {
  Problems problems;
  StartState start;
  Lifetimes lifetimes;
  bool agrees = false;  // following the events from the start leads to the end
};

Undone undo(const std::vector<AllocatorEvent>& events, const std::vector<SnapshotSegment>& end, const AllocConf& conf = {}) {
  Undone out;
  out.start = reconstruct_start(events, end, conf, &out.problems);
  out.lifetimes = follow_blocks(events, conf, &out.problems, out.start);
  Trace trace;
  trace.header.source = "snapshot";
  trace.end_segments = end;
  out.agrees = compare_with_recorded(trace, out.lifetimes).matches_recorded;
  return out;
}

int64_t problems(const Undone& u) {
  int64_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(Problem::count_); ++i) count += u.problems[static_cast<Problem>(i)].count;
  return count;
}

TEST(StartState, CompleteHistoryLeavesNothing) {
  const Undone u = undo({start_event(EventKind::segment_alloc, kStartBase, 2 * kMiB), start_event(EventKind::alloc, kStartBase, 1000),
                         start_event(EventKind::alloc, kStartBase + 1024, 512), start_event(EventKind::free_requested, kStartBase, 1000),
                         start_event(EventKind::free_completed, kStartBase, 1000)},
                        {segment(kStartBase, {block(State::inactive, 1024), block(State::active_allocated, 512, 512),
                                              block(State::inactive, 2 * kMiB - 1536)})});
  EXPECT_TRUE(u.start.segments.empty());
  EXPECT_TRUE(u.agrees);
  EXPECT_EQ(problems(u), 0);
}

TEST(StartState, BlocksBeforeTheFirstEvent) {
  // Before: A [0, 1024) used, B [1024, 2048) pending, C [4096, 5120) used. B completes, C is freed, D is allocated.
  const std::vector<AllocatorEvent> events = {
      start_event(EventKind::free_completed, kStartBase + 1024, 1000), start_event(EventKind::free_requested, kStartBase + 4096, 700),
      start_event(EventKind::free_completed, kStartBase + 4096, 700), start_event(EventKind::alloc, kStartBase + 1024, 512)};
  const Undone u = undo(events, {segment(kStartBase, {block(State::active_allocated, 1024, 1000), block(State::active_allocated, 512, 512),
                                                      block(State::inactive, 2 * kMiB - 1536)})});
  ASSERT_EQ(u.start.segments.size(), 1u);
  const auto& blocks = u.start.segments[0].blocks;
  ASSERT_EQ(blocks.size(), 5u);
  EXPECT_EQ(blocks[1].state, State::active_pending_free);
  EXPECT_EQ(blocks[1].size_bytes, 1024);
  EXPECT_EQ(blocks[2].state, State::inactive);
  EXPECT_EQ(blocks[3].address, kStartBase + 4096);
  EXPECT_EQ(blocks[3].size_bytes, 1024);
  EXPECT_EQ(blocks[3].state, State::active_allocated);
  EXPECT_EQ(u.start.allocated_bytes, 2048) << "what is pending is not allocated any more";
  EXPECT_EQ(u.start.reserved_bytes, 2 * kMiB);
  EXPECT_TRUE(u.agrees);
  EXPECT_EQ(problems(u), 0);
  EXPECT_EQ(u.lifetimes.start_allocated_bytes, 2048);
  EXPECT_EQ(u.lifetimes.allocated, (std::vector<int64_t>{2048, 1024, 1024, 1536}));
  EXPECT_EQ(u.lifetimes.peak_allocated.bytes, 2048);
  EXPECT_FALSE(u.lifetimes.peak_allocated.before_start);
  ASSERT_EQ(u.lifetimes.blocks.size(), 3u);
  EXPECT_TRUE(u.lifetimes.blocks[0].before_start);
  EXPECT_TRUE(u.lifetimes.blocks[0].alive_at(0));
  EXPECT_FALSE(u.lifetimes.blocks[2].before_start);
}

TEST(StartState, PeakBeforeTheFirstEvent) {
  const Undone u = undo({start_event(EventKind::free_requested, kStartBase, 1000), start_event(EventKind::free_completed, kStartBase, 1000),
                         start_event(EventKind::segment_free, kStartBase, 2 * kMiB)},
                        {});
  EXPECT_EQ(u.lifetimes.peak_allocated.bytes, 1024);
  EXPECT_TRUE(u.lifetimes.peak_allocated.before_start);
  EXPECT_EQ(u.lifetimes.allocated_at(u.lifetimes.peak_allocated.position()), 1024);
  EXPECT_EQ(u.lifetimes.peak_reserved.bytes, 2 * kMiB);
  EXPECT_FALSE(u.lifetimes.peak_reserved.before_start) << "still reserved after the first event";
}

TEST(StartState, SegmentsThatWereFreed) {
  const Undone u =
      undo({start_event(EventKind::segment_free, kStartBase, 20 * kMiB), start_event(EventKind::segment_alloc, kStartBase, 2 * kMiB)},
           {segment(kStartBase, {block(State::inactive, 2 * kMiB)})});
  ASSERT_EQ(u.start.segments.size(), 1u);
  EXPECT_EQ(u.start.segments[0].size_bytes, 20 * kMiB);
  EXPECT_TRUE(u.start.segments[0].large);
  EXPECT_TRUE(u.agrees);
}

// The size of a freed block: a rest that is too small to split stays with it.
TEST(StartState, RestsBelongToTheirBlock) {
  const std::vector<AllocatorEvent> free_a = {start_event(EventKind::free_requested, kStartBase, 5 * kMiB),
                                              start_event(EventKind::free_completed, kStartBase, 5 * kMiB)};
  {  // A [0, 5.5 MiB) with a rest of half a MiB, B after it
    const Undone u = undo(
        free_a, {segment(kStartBase, {block(State::inactive, 5 * kMiB + kMiB / 2), block(State::active_allocated, 10 * kMiB, 10 * kMiB)})});
    EXPECT_EQ(u.start.segments[0].blocks[0].size_bytes, 5 * kMiB + kMiB / 2);
    EXPECT_EQ(u.start.segments[0].blocks[0].state, State::active_allocated);
    EXPECT_TRUE(u.agrees);
  }
  {  // 15 MiB after it: the rest was split off, exactly at 5 MiB if no event contradicts that
    const Undone u = undo(free_a, {segment(kStartBase, {block(State::inactive, 20 * kMiB)})});
    EXPECT_EQ(u.start.segments[0].blocks[0].size_bytes, 5 * kMiB);
  }
  {  // an allocation at 5.5 MiB while A is alive: the free block began there
    std::vector<AllocatorEvent> events = {start_event(EventKind::alloc, kStartBase + 5 * kMiB + kMiB / 2, 2 * kMiB)};
    events.insert(events.end(), free_a.begin(), free_a.end());
    const Undone u =
        undo(events, {segment(kStartBase, {block(State::inactive, 5 * kMiB + kMiB / 2), block(State::active_allocated, 2 * kMiB, 2 * kMiB),
                                           block(State::inactive, 12 * kMiB + kMiB / 2)})});
    EXPECT_EQ(u.start.segments[0].blocks[0].size_bytes, 5 * kMiB + kMiB / 2);
    EXPECT_TRUE(u.agrees);
    EXPECT_EQ(problems(u), 0);
  }
}

TEST(StartState, ExpandableSegments) {
  // Mapped before: [0, 20 MiB); then [20, 40) is mapped, [0, 20) unmapped.
  const std::vector<AllocatorEvent> events = {start_event(EventKind::segment_map, kStartBase + 20 * kMiB, 20 * kMiB),
                                              start_event(EventKind::segment_unmap, kStartBase, 20 * kMiB),
                                              start_event(EventKind::alloc, kStartBase + 20 * kMiB, 3 * kMiB)};
  const Undone u = undo(events, {segment(kStartBase + 20 * kMiB,
                                         {block(State::active_allocated, 3 * kMiB, 3 * kMiB), block(State::inactive, 17 * kMiB)}, true)});
  ASSERT_EQ(u.start.segments.size(), 1u);
  EXPECT_EQ(u.start.segments[0].address, kStartBase);
  EXPECT_EQ(u.start.segments[0].size_bytes, 20 * kMiB);
  EXPECT_TRUE(u.start.segments[0].expandable);
  EXPECT_EQ(u.lifetimes.reserved, (std::vector<int64_t>{40 * kMiB, 20 * kMiB, 20 * kMiB}));
  EXPECT_TRUE(u.agrees);
  EXPECT_EQ(problems(u), 0);
}

TEST(StartState, ContradictionsAreCounted) {
  const std::vector<AllocatorEvent> events = {start_event(EventKind::alloc, kStartBase, 1000),  // missing at the end, never freed
                                              start_event(EventKind::segment_alloc, kStartBase + 64 * kMiB, 2 * kMiB),
                                              start_event(EventKind::free_requested, kStartBase + 4096, 5),
                                              start_event(EventKind::segment_map, kStartBase, 2 * kMiB)};
  const Undone u = undo(events, {segment(kStartBase, {block(State::inactive, 2 * kMiB)})});
  EXPECT_EQ(u.start.unclear, 4);
  EXPECT_EQ(u.problems[Problem::start_unclear].count, 4);
  EXPECT_FALSE(u.agrees);
}

// Found by fuzzing: a block that was pending before the first event has no owner.
TEST(StartState, AllocationInABlockThatIsPendingFromTheStart) {
  const Undone u = undo({start_event(EventKind::alloc, kStartBase + 512, 600)},
                        {segment(kStartBase, {block(State::active_pending_free, 4096, 4096), block(State::inactive, 2 * kMiB - 4096)})});
  EXPECT_EQ(u.problems[Problem::segment_overlap].count, 1);
  EXPECT_EQ(u.lifetimes.allocated.back(), 1024);
}

// Cuts random histories at every event: the start that is found equals the real state there.
TEST(StartState, EveryCutOfAHistoryGivesTheStateThere) {
  std::vector<AllocatorEvent> events;
  struct Live {
    uint64_t address;
    int64_t requested;
  };
  std::vector<Live> live;
  uint64_t seed = 12345;
  const auto random = [&](uint64_t below) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (seed >> 33) % below;
  };
  // First fit of small blocks in segments of 2 MiB. There are no rests, so every state is known exactly.
  std::vector<std::vector<bool>> used;  // by segment, in units of 512 B
  for (int step = 0; step < 400; ++step) {
    if (!live.empty() && random(3) == 0) {
      const size_t i = random(live.size());
      events.push_back(start_event(EventKind::free_requested, live[i].address, live[i].requested));
      events.push_back(start_event(EventKind::free_completed, live[i].address, live[i].requested));
      const auto offset = (live[i].address - kStartBase) / 512;
      for (int64_t unit = 0; unit < (live[i].requested + 511) / 512; ++unit)
        used[offset / 4096][offset % 4096 + static_cast<uint64_t>(unit)] = false;
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const auto requested = static_cast<int64_t>(random(kMiB - 1) + 1);
    const auto units = static_cast<size_t>((requested + 511) / 512);
    for (size_t s = 0;; ++s) {
      if (s == used.size()) {
        used.emplace_back(4096, false);
        events.push_back(start_event(EventKind::segment_alloc, kStartBase + s * 2 * kMiB, 2 * kMiB));
      }
      const auto gap = std::search_n(used[s].begin(), used[s].end(), static_cast<int>(units), false);
      if (gap == used[s].end()) continue;
      std::fill(gap, gap + static_cast<std::ptrdiff_t>(units), true);
      const uint64_t address = kStartBase + s * 2 * kMiB + static_cast<uint64_t>(gap - used[s].begin()) * 512;
      events.push_back(start_event(EventKind::alloc, address, requested));
      live.push_back({address, requested});
      break;
    }
  }
  const AllocConf conf;
  Problems ignored;
  const Lifetimes whole = follow_blocks(events, conf, &ignored);
  std::vector<SnapshotSegment> end;
  for (const RecordedSegment& recorded : whole.segments) {
    SnapshotSegment s;
    s.address = recorded.address;
    s.size_bytes = recorded.size_bytes;
    std::map<uint64_t, SnapshotBlock> blocks;
    for (const Block& b : whole.blocks) {
      if (b.free_event == Block::kNever && b.address >= s.address && b.address < s.address + 2 * kMiB)
        blocks[b.address] = {b.address, b.size_bytes, b.requested_bytes, StackId(), State::active_allocated};
    }
    uint64_t at = s.address;
    for (const auto& [address, b] : blocks) {
      if (address > at) s.blocks.push_back({at, static_cast<int64_t>(address - at), 0, StackId(), State::inactive});
      s.blocks.push_back(b);
      at = address + static_cast<uint64_t>(b.size_bytes);
    }
    if (at < s.address + 2 * kMiB) s.blocks.push_back({at, static_cast<int64_t>(s.address + 2 * kMiB - at), 0, StackId(), State::inactive});
    end.push_back(s);
  }
  for (size_t cut = 0; cut < events.size(); ++cut) {
    const std::vector<AllocatorEvent> rest(events.begin() + static_cast<std::ptrdiff_t>(cut), events.end());
    const Undone u = undo(rest, end);
    ASSERT_TRUE(u.agrees) << cut;
    ASSERT_EQ(problems(u), 0) << cut;
    ASSERT_EQ(u.start.allocated_bytes, cut == 0 ? 0 : whole.allocated[cut - 1]) << cut;
    ASSERT_EQ(u.start.reserved_bytes, cut == 0 ? 0 : whole.reserved[cut - 1]) << cut;
    ASSERT_EQ(u.lifetimes.allocated.back(), whole.allocated.back()) << cut;
  }
}

}  // namespace
}  // namespace gpucast

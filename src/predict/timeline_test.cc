#include "src/predict/timeline.h"

#include <gtest/gtest.h>

#include "src/base/alloc_conf.h"
#include "src/base/bytes.h"

namespace gpucast {
namespace {

constexpr uint64_t kTimelineBase = 0x7f0000000000;

AllocatorEvent event(EventKind kind, uint64_t mib, int64_t size_mib) {
  return {kind, StackId(), kTimelineBase + mib * static_cast<uint64_t>(kMiB), size_mib * kMiB, 0, 0};
}

Facts follow_events(std::vector<AllocatorEvent> events) {
  Facts out;
  out.trace.header.source = "vgpu";
  out.trace.events = std::move(events);
  out.lifetimes = follow_blocks(out.trace.events, parse_alloc_conf("", "2.6.0"), &out.trace.problems);
  return out;
}

void expect_adds_up(const Facts& facts) {
  const std::vector<SegmentLife> lives = segment_lives(facts);
  for (uint32_t position = 0; position <= facts.trace.events.size(); ++position) {
    int64_t sum = 0;
    for (const SegmentLife& life : lives) {
      if (life.birth <= position && position < life.death) sum += life.size_bytes;
    }
    EXPECT_EQ(sum, facts.lifetimes.reserved_at(position)) << "position " << position;
  }
}

TEST(SegmentLives, AddUpToReserved) {
  expect_adds_up(
      follow_events({event(EventKind::segment_alloc, 0, 20), event(EventKind::alloc, 0, 12), event(EventKind::segment_alloc, 100, 2),
                     event(EventKind::free_requested, 0, 12), event(EventKind::free_completed, 0, 12),
                     event(EventKind::segment_free, 0, 20), event(EventKind::segment_alloc, 0, 40)}));
}

TEST(SegmentLives, CutMappedRanges) {
  const Facts facts = follow_events({event(EventKind::segment_map, 0, 20), event(EventKind::segment_map, 20, 40),
                                     event(EventKind::segment_unmap, 10, 30), event(EventKind::segment_map, 10, 10)});
  expect_adds_up(facts);
  EXPECT_EQ(segment_lives(facts).size(), 5U);  // two whole segments, the remaining parts on both sides, and the last one
}

TEST(SegmentLives, SurviveContradictingEvents) {
  expect_adds_up(
      follow_events({event(EventKind::segment_free, 0, 20), event(EventKind::segment_alloc, 0, 20), event(EventKind::segment_alloc, 0, 40),
                     event(EventKind::segment_unmap, 0, 2), event(EventKind::segment_map, 100, 4), event(EventKind::alloc, 100, 4),
                     event(EventKind::segment_unmap, 100, 4), event(EventKind::segment_map, 104, 4)}));
}

TEST(ReleasedAt, WaitsForTheFreeToComplete) {
  const Facts facts = follow_events({event(EventKind::segment_alloc, 0, 20), event(EventKind::alloc, 0, 4), event(EventKind::alloc, 4, 4),
                                     event(EventKind::free_requested, 0, 4), event(EventKind::free_requested, 4, 4),
                                     event(EventKind::free_completed, 4, 4)});
  EXPECT_EQ(released_at(facts), (std::vector<uint32_t>{Block::kNever, 6}));
}

}  // namespace
}  // namespace gpucast

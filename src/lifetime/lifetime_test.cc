#include "src/lifetime/lifetime.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

constexpr uint64_t kLifetimeBase = 0x7f0000000000;

AllocatorEvent event(EventKind kind, uint64_t address, int64_t size, uint64_t stream = 0) {
  return {kind, StackId(), address, size, stream, 0};
}

struct AllocatorEvents {
  std::vector<AllocatorEvent> events;
  void alloc(uint64_t at, int64_t size, uint64_t stream = 0) { events.push_back(event(EventKind::alloc, at, size, stream)); }
  void free(uint64_t at, int64_t size) {
    events.push_back(event(EventKind::free_requested, at, size));
    events.push_back(event(EventKind::free_completed, at, size));
  }
  void add(EventKind kind, uint64_t at, int64_t size, uint64_t stream = 0) { events.push_back(event(kind, at, size, stream)); }
};

Lifetimes follow(const AllocatorEvents& history, const std::string& conf = "", Problems* problems = nullptr) {
  Problems none;
  return follow_blocks(history.events, parse_alloc_conf(conf, "2.14.1"), problems == nullptr ? &none : problems);
}

TEST(Lifetime, BlocksCountRoundedSizesAndUnsplitRests) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 20 * kMiB);
  h.alloc(kLifetimeBase, 5 * kMiB - 100);              // rounded to 5 MiB; 15 MiB stay free
  h.alloc(kLifetimeBase + 5 * kMiB, 14 * kMiB + 512);  // leaves less than 1 MiB: the block is 15 MiB
  h.free(kLifetimeBase, 5 * kMiB - 100);
  const Lifetimes result = follow(h);
  EXPECT_EQ(result.allocated, (std::vector<int64_t>{0, 5 * kMiB, 20 * kMiB, 15 * kMiB, 15 * kMiB}));
  EXPECT_EQ(result.reserved, std::vector<int64_t>(5, 20 * kMiB));
  ASSERT_EQ(result.blocks.size(), 2u);
  EXPECT_EQ(result.blocks[0].size_bytes, 5 * kMiB);
  EXPECT_EQ(result.blocks[0].requested_bytes, 5 * kMiB - 100);
  EXPECT_EQ(result.blocks[0].free_event, 3u);
  EXPECT_EQ(result.blocks[1].size_bytes, 15 * kMiB);
  EXPECT_EQ(result.blocks[1].free_event, Block::kNever);
  EXPECT_EQ(result.peak_allocated.bytes, 20 * kMiB);
  EXPECT_EQ(result.peak_allocated.event, 2u);
}

TEST(Lifetime, RestOfExactlyOneMibIsNotSplitOff) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 20 * kMiB);
  h.alloc(kLifetimeBase, 19 * kMiB);
  EXPECT_EQ(follow(h).allocated.back(), 20 * kMiB);
}

TEST(Lifetime, SmallPoolSplitsOff512Bytes) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 2 * kMiB);
  h.alloc(kLifetimeBase, 1);
  h.alloc(kLifetimeBase + 512, 1000);
  const Lifetimes result = follow(h);
  EXPECT_EQ(result.allocated.back(), 512 + 1024);
}

TEST(Lifetime, NeighboursMergeOnceTheyAreFree) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 20 * kMiB);
  h.alloc(kLifetimeBase, 4 * kMiB);
  h.alloc(kLifetimeBase + 4 * kMiB, 4 * kMiB);
  h.free(kLifetimeBase, 4 * kMiB);
  h.free(kLifetimeBase + 4 * kMiB, 4 * kMiB);  // now all 20 MiB are one free block
  h.alloc(kLifetimeBase, 19 * kMiB + 512);
  Problems problems;
  const Lifetimes result = follow(h, "", &problems);
  EXPECT_EQ(result.allocated.back(), 20 * kMiB);
  EXPECT_EQ(problems[Problem::alloc_outside_segment].count, 0);
  EXPECT_EQ(problems[Problem::split_unexpected].count, 0);
}

TEST(Lifetime, RecordStreamHoldsTheBlockUntilTheFreeCompletes) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 20 * kMiB);
  h.alloc(kLifetimeBase, 4 * kMiB);
  h.add(EventKind::free_requested, kLifetimeBase, 4 * kMiB);  // another stream still works on it
  h.alloc(kLifetimeBase + 4 * kMiB, 4 * kMiB);
  h.add(EventKind::free_completed, kLifetimeBase, 4 * kMiB);
  const Lifetimes result = follow(h);
  EXPECT_EQ(result.allocated, (std::vector<int64_t>{0, 4 * kMiB, 0, 4 * kMiB, 4 * kMiB}));
}

TEST(Lifetime, MaxSplitSizeKeepsLargeBlocksWhole) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 150 * kMiB);
  h.alloc(kLifetimeBase, 140 * kMiB);
  EXPECT_EQ(follow(h, "max_split_size_mb:100").allocated.back(), 150 * kMiB);
  EXPECT_EQ(follow(h).allocated.back(), 140 * kMiB);
}

TEST(Lifetime, ExpandableSegmentsGrowShrinkAndMerge) {
  AllocatorEvents h;
  h.add(EventKind::segment_map, kLifetimeBase, 20 * kMiB);
  h.alloc(kLifetimeBase, 19 * kMiB + 512);  // the rest of less than 1 MiB is split off here
  h.add(EventKind::segment_map, kLifetimeBase + 20 * kMiB, 20 * kMiB);
  h.alloc(kLifetimeBase + 19 * kMiB + 512, 20 * kMiB);  // spans both mappings
  h.free(kLifetimeBase + 19 * kMiB + 512, 20 * kMiB);
  h.add(EventKind::segment_unmap, kLifetimeBase + 20 * kMiB, 20 * kMiB);
  Problems problems;
  const Lifetimes result = follow(h, "expandable_segments:True", &problems);
  EXPECT_EQ(result.allocated, (std::vector<int64_t>{0, 19 * kMiB + 512, 19 * kMiB + 512, 39 * kMiB + 512, 19 * kMiB + 512, 19 * kMiB + 512,
                                                    19 * kMiB + 512}));
  EXPECT_EQ(result.reserved, (std::vector<int64_t>{20 * kMiB, 20 * kMiB, 40 * kMiB, 40 * kMiB, 40 * kMiB, 40 * kMiB, 20 * kMiB}));
  EXPECT_EQ(result.segments, (std::vector<RecordedSegment>{{kLifetimeBase, 20 * kMiB, 0}}));
  for (size_t i = 0; i < static_cast<size_t>(Problem::count_); ++i) EXPECT_EQ(problems[static_cast<Problem>(i)].count, 0);
}

TEST(Lifetime, UnexpectedSplitsCorrectTheBlockBefore) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 20 * kMiB);
  h.alloc(kLifetimeBase, 19 * kMiB + 512);               // by the rule: all 20 MiB
  h.alloc(kLifetimeBase + 19 * kMiB + 512, kMiB - 512);  // but it was split
  Problems problems;
  const Lifetimes result = follow(h, "", &problems);
  EXPECT_EQ(problems[Problem::split_unexpected].count, 1);
  EXPECT_EQ(result.allocated, (std::vector<int64_t>{0, 19 * kMiB + 512, 20 * kMiB}));
}

TEST(Lifetime, WhatDoesNotFitTogetherIsCountedAndSurvived) {
  AllocatorEvents h;
  h.alloc(kLifetimeBase, 512);  // outside of all segments
  h.free(kLifetimeBase, 512);
  h.free(kLifetimeBase + kMiB, 512);                        // never allocated
  h.add(EventKind::segment_free, kLifetimeBase, 2 * kMiB);  // never allocated
  h.add(EventKind::segment_alloc, kLifetimeBase, 2 * kMiB);
  h.alloc(kLifetimeBase, 512);
  h.add(EventKind::segment_alloc, kLifetimeBase + kMiB, 2 * kMiB);  // overlaps
  h.add(EventKind::segment_free, kLifetimeBase, 2 * kMiB);
  Problems problems;
  const Lifetimes result = follow(h, "", &problems);
  EXPECT_EQ(problems[Problem::alloc_outside_segment].count, 1);
  EXPECT_GE(problems[Problem::free_unknown].count, 2);
  EXPECT_EQ(problems[Problem::segment_overlap].count, 1);
  EXPECT_EQ(result.allocated[0], 512);
  EXPECT_EQ(result.allocated[1], 0);
}

TEST(Lifetime, ComparesWithPyTorchsCounters) {
  AllocatorEvents h;
  h.add(EventKind::segment_alloc, kLifetimeBase, 2 * kMiB);
  h.alloc(kLifetimeBase, 512);
  const Lifetimes result = follow(h);
  Trace trace;
  EXPECT_FALSE(compare_with_recorded(trace, result).possible);
  trace.end.torch_stats = TorchStats{512, 2 * kMiB, 512, 2 * kMiB, 0, 0};
  trace.end.segments = {{kLifetimeBase, 2 * kMiB, 0}};
  EXPECT_TRUE(compare_with_recorded(trace, result).matches_recorded);
  trace.end.torch_stats->peak_allocated_bytes = 1024;
  EXPECT_FALSE(compare_with_recorded(trace, result).matches_recorded);
  trace.end.torch_stats->peak_allocated_bytes = 512;
  trace.end.segments = {{kLifetimeBase, 4 * kMiB, 0}};
  EXPECT_FALSE(compare_with_recorded(trace, result).matches_recorded);
}

// A very simple allocator of our own (one list of pieces per segment, best fit) runs a random program. Its state must be found from the
// events alone.
class ToyAllocator {
 public:
  ToyAllocator(unsigned seed, bool expandable) : random_(seed), expandable_(expandable) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      const auto roll = random_() % 100;
      if (roll < 55 || live_.empty()) {
        alloc(size());
      } else if (roll < 92) {
        request_free();
      } else if (roll < 98) {
        complete_frees();
      } else {
        complete_frees();
        release();
      }
    }
  }

  AllocatorEvents history;
  std::vector<int64_t> allocated, reserved;  // after every event
  std::map<uint64_t, int64_t> live_;         // address -> block size

 private:
  struct Free {
    uint64_t address;
    int64_t size;
  };
  struct Space {  // a segment, or all mapped memory of an expandable one
    uint64_t address;
    int64_t size;
    bool small;
    std::map<uint64_t, int64_t> free;
  };

  int64_t size() {
    switch (random_() % 3) {
      case 0:
        return 1 + static_cast<int64_t>(random_() % (kMiB / 4));
      case 1:
        return kMiB + 1 + static_cast<int64_t>(random_() % (8 * kMiB));
      default:
        return 1 + static_cast<int64_t>(random_() % (40 * kMiB));
    }
  }

  void record(EventKind kind, uint64_t address, int64_t bytes) {
    history.add(kind, address, bytes);
    allocated.push_back(allocated_now_);
    reserved.push_back(reserved_now_);
  }

  void alloc(int64_t requested) {
    const int64_t rounded = (requested + 511) / 512 * 512;
    const bool small = rounded <= kMiB;
    Space* best = nullptr;
    uint64_t at = 0;
    int64_t found = INT64_MAX;
    for (auto& [id, space] : spaces_) {
      if (space.small != small) continue;
      for (const auto& [address, free_size] : space.free) {
        if (free_size >= rounded && free_size < found) best = &space, at = address, found = free_size;
      }
    }
    if (best == nullptr) {
      const int64_t granule = small ? 2 * kMiB : expandable_ || rounded < 10 * kMiB ? 20 * kMiB : 2 * kMiB;
      const int64_t bytes = (rounded + granule - 1) / granule * granule;
      reserved_now_ += bytes;
      if (expandable_) {
        best = &spaces_.try_emplace(small ? 1 : 2, Space{small ? kLifetimeBase : kLifetimeBase + (uint64_t{1} << 40), 0, small, {}})
                    .first->second;
        at = best->address + static_cast<uint64_t>(best->size);
        best->size += bytes;
        record(EventKind::segment_map, at, bytes);
      } else {
        at = next_address_;
        next_address_ += static_cast<uint64_t>(bytes);  // segments are adjacent, and must not be merged
        best = &spaces_.try_emplace(at, Space{at, bytes, small, {}}).first->second;
        record(EventKind::segment_alloc, at, bytes);
      }
      at = give_back(best, at, bytes);
      found = best->free[at];
    }
    best->free.erase(at);
    const int64_t rest = found - rounded;
    const bool split = small || expandable_ ? rest >= 512 : rest > kMiB;
    const int64_t block = split ? rounded : found;
    if (split && rest > 0) best->free[at + static_cast<uint64_t>(rounded)] = rest;
    live_[at] = block;
    owner_[at] = best == nullptr ? 0 : key(best);
    requested_[at] = requested;
    allocated_now_ += block;
    record(EventKind::alloc, at, requested);
  }

  uint64_t key(const Space* space) {
    for (auto& [id, candidate] : spaces_) {
      if (&candidate == space) return id;
    }
    return 0;
  }

  // Adds to the free list, merges, returns the merged piece's address.
  static uint64_t give_back(Space* space, uint64_t address, int64_t bytes) {
    auto at = space->free.emplace(address, bytes).first;
    if (at != space->free.begin()) {
      auto left = std::prev(at);
      if (left->first + static_cast<uint64_t>(left->second) == at->first) {
        left->second += at->second;
        space->free.erase(at);
        at = left;
      }
    }
    auto right = std::next(at);
    if (right != space->free.end() && at->first + static_cast<uint64_t>(at->second) == right->first) {
      at->second += right->second;
      space->free.erase(right);
    }
    return at->first;
  }

  void request_free() {
    auto victim = std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_() % live_.size()));
    const auto [address, bytes] = *victim;
    live_.erase(victim);
    allocated_now_ -= bytes;
    record(EventKind::free_requested, address, requested_[address]);
    pending_.push_back({address, bytes});
    if (random_() % 4 != 0) complete_frees();
  }

  void complete_frees() {
    for (const Free& entry : pending_) {
      record(EventKind::free_completed, entry.address, requested_[entry.address]);
      give_back(&spaces_.at(owner_[entry.address]), entry.address, entry.size);
    }
    pending_.clear();
  }

  void release() {
    for (auto it = spaces_.begin(); it != spaces_.end();) {
      Space& space = it->second;
      if (!expandable_ && space.free.size() == 1 && space.free.begin()->second == space.size) {
        reserved_now_ -= space.size;
        record(EventKind::segment_free, space.address, space.size);
        it = spaces_.erase(it);
        continue;
      }
      if (expandable_ && !space.free.empty()) {  // whole granules at the end
        const int64_t granule = space.small ? 2 * kMiB : 20 * kMiB;
        const auto last = std::prev(space.free.end());
        const uint64_t end = space.address + static_cast<uint64_t>(space.size);
        if (last->first + static_cast<uint64_t>(last->second) == end && last->second >= granule) {
          const int64_t bytes = last->second / granule * granule;
          last->second -= bytes;
          if (last->second == 0) space.free.erase(last);
          space.size -= bytes;
          reserved_now_ -= bytes;
          record(EventKind::segment_unmap, end - static_cast<uint64_t>(bytes), bytes);
        }
      }
      ++it;
    }
  }

  std::mt19937 random_;
  bool expandable_;
  std::map<uint64_t, Space> spaces_;
  std::map<uint64_t, uint64_t> owner_;
  std::map<uint64_t, int64_t> requested_;
  std::vector<Free> pending_;
  uint64_t next_address_ = kLifetimeBase;
  int64_t allocated_now_ = 0, reserved_now_ = 0;
};

class LifetimeProperty : public testing::TestWithParam<std::tuple<unsigned, bool>> {};

TEST_P(LifetimeProperty, BooksAreFoundAgainFromTheEvents) {
  const auto [seed, expandable] = GetParam();
  ToyAllocator toy(seed, expandable);
  toy.run(2000);
  Problems problems;
  const Lifetimes result = follow(toy.history, expandable ? "expandable_segments:True" : "", &problems);
  for (size_t i = 0; i < static_cast<size_t>(Problem::count_); ++i) {
    const auto problem = static_cast<Problem>(i);
    EXPECT_EQ(problems[problem].count, 0) << problem_info(problem).name << ": " << problems[problem].first;
  }
  EXPECT_EQ(result.allocated, toy.allocated);
  EXPECT_EQ(result.reserved, toy.reserved);
  // All blocks alive at the end are inside segments, and no two blocks overlap.
  std::map<uint64_t, int64_t> alive;
  for (const Block& block : result.blocks) {
    if (block.free_event == Block::kNever) alive[block.address] = block.size_bytes;
  }
  EXPECT_EQ(alive, toy.live_);
  uint64_t last_end = 0;
  for (const auto& [address, bytes] : alive) {
    EXPECT_GE(address, last_end);
    last_end = address + static_cast<uint64_t>(bytes);
    const bool inside = std::any_of(result.segments.begin(), result.segments.end(), [&, at = address](const RecordedSegment& segment) {
      return at >= segment.address && last_end <= segment.address + static_cast<uint64_t>(segment.size_bytes);
    });
    EXPECT_TRUE(inside);
  }
  int64_t segments = 0;
  for (const RecordedSegment& segment : result.segments) segments += segment.size_bytes;
  EXPECT_EQ(segments, toy.reserved.back());
}

INSTANTIATE_TEST_SUITE_P(Seeds, LifetimeProperty, testing::Combine(testing::Range(1u, 9u), testing::Bool()));

}  // namespace
}  // namespace gpucast

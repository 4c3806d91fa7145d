// Sequences small enough to follow on paper. tests/differential and the event files show that PyTorch does the same.
#include "src/allocator/caching_allocator.h"

#include <gtest/gtest.h>

#include <tuple>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

constexpr uint64_t kCachingBase = 0x200000000000, kRange = 0x300000000000;  // AscendingDriver's first segment, first range
constexpr BlockState kUsed = BlockState::allocated, kFree = BlockState::inactive, kPending = BlockState::pending_free;

struct CachingFixture {
  AscendingDriver driver;
  CachingAllocator allocator;
  std::vector<AllocatorAction> actions;

  explicit CachingFixture(const std::string& conf = "", int64_t capacity_bytes = 1000 * kMiB, const std::string& torch = "2.6.0")
      : driver(capacity_bytes), allocator(parse_alloc_conf(conf, torch), CachingAllocator::Streams{{0, 1, 2}, {0, 3, 35}}, &driver) {
    allocator.record_actions(&actions);
  }
  BlockRef allocate(int64_t size_bytes, StreamIndex stream = 0) { return allocator.allocate(size_bytes, stream); }
  int64_t offset(BlockRef block, uint64_t base = kCachingBase) const { return static_cast<int64_t>(allocator.address(block) - base); }
  const AllocatorStats& stats() const { return allocator.stats(); }

  // (offset from the first segment or range, size) of every block.
  using Blocks = std::vector<std::tuple<int64_t, int64_t, BlockState>>;
  Blocks blocks() const {
    Blocks out;
    for (const Segment& segment : allocator.segments()) {
      for (const SegmentBlock& block : segment.blocks) {
        out.emplace_back(static_cast<int64_t>(block.address - (segment.expandable ? kRange : kCachingBase)), block.size_bytes, block.state);
      }
    }
    return out;
  }
  std::vector<int64_t> segments() const {
    std::vector<int64_t> out;
    for (const Segment& segment : allocator.segments()) out.push_back(segment.size_bytes);
    return out;
  }
  std::vector<EventKind> kinds() const {
    std::vector<EventKind> out;
    for (const AllocatorAction& action : actions) out.push_back(action.kind);
    return out;
  }
};

TEST(CachingAllocator, RoundsTo512Bytes) {
  CachingFixture f;
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(1)), 512);
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(512)), 512);
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(513)), 1024);
  EXPECT_EQ(f.stats().allocated_bytes, 2048);
  EXPECT_EQ(f.stats().requested_bytes, 1 + 512 + 513);
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 512, kUsed}, {512, 512, kUsed}, {1024, 1024, kUsed}, {2048, 2 * kMiB - 2048, kFree}}));
}

TEST(CachingAllocator, SegmentSizesFollowTheRequest) {
  const std::pair<int64_t, int64_t> cases[] = {
      {1, 2 * kMiB},          {kMiB, 2 * kMiB},       {kMiB + 1, 20 * kMiB},      {10 * kMiB - 512, 20 * kMiB},
      {10 * kMiB, 10 * kMiB}, {11 * kMiB, 12 * kMiB}, {12 * kMiB + 1, 14 * kMiB}, {100 * kMiB, 100 * kMiB},
  };
  for (const auto& [request, segment] : cases) {
    CachingFixture f;
    f.allocate(request);
    EXPECT_EQ(f.segments(), std::vector<int64_t>{segment}) << request;
    EXPECT_EQ(f.stats().reserved_bytes, segment);
    EXPECT_EQ(f.allocator.segments()[0].large, request > kMiB);
  }
}

TEST(CachingAllocator, SmallBlocksAreSplitToTheLast512Bytes) {
  CachingFixture f;
  const BlockRef a = f.allocate(1536);
  f.allocate(512);
  f.allocator.free(a);
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(1024)), 1024);
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 1024, kUsed}, {1024, 512, kFree}, {1536, 512, kUsed}, {2048, 2 * kMiB - 2048, kFree}}));
}

TEST(CachingAllocator, LargeBlocksAreSplitWhenMoreThanOneMiBIsLeft) {
  CachingFixture f;
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(11 * kMiB)), 12 * kMiB);              // 1 MiB would be left
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(13 * kMiB - 512)), 13 * kMiB - 512);  // 1 MiB and 512 B
  EXPECT_EQ(f.stats().allocated_bytes, 25 * kMiB - 512);
  EXPECT_EQ(f.stats().requested_bytes, 24 * kMiB - 512);
}

TEST(CachingAllocator, BestFitThenLowestAddress) {
  CachingFixture f;
  const BlockRef a = f.allocate(40 * kKiB);
  f.allocate(512);
  const BlockRef b = f.allocate(20 * kKiB);
  f.allocate(512);
  const BlockRef c = f.allocate(20 * kKiB);
  f.allocate(512);
  const int64_t first = f.offset(b);
  const int64_t second = f.offset(c);
  f.allocator.free(c);
  f.allocator.free(a);
  f.allocator.free(b);
  EXPECT_EQ(f.offset(f.allocate(20 * kKiB)), first);
  EXPECT_EQ(f.offset(f.allocate(20 * kKiB)), second);
  EXPECT_EQ(f.offset(f.allocate(20 * kKiB)), 0);
}

TEST(CachingAllocator, NewReleasesPreferTheOlderSegmentAmongEquals) {
  for (const char* torch : {"2.6.0", "2.14.1"}) {
    // The state of a snapshot. Linux drivers place each range of 32 MiB below the last, so the higher one is older.
    AscendingDriver driver(1000 * kMiB);
    CachingAllocator allocator(parse_alloc_conf("", torch), CachingAllocator::Streams{{0}, {0}}, &driver);
    Segment high;
    high.address = kCachingBase + 64 * static_cast<uint64_t>(kMiB);
    high.size_bytes = 12 * kMiB;
    high.large = true;
    high.blocks = {{high.address, 12 * kMiB, 0, kFree}};
    Segment low = high;
    low.address = low.blocks[0].address = kCachingBase;
    allocator.restore({low, high});
    EXPECT_EQ(allocator.address(allocator.allocate(12 * kMiB, 0)), std::string(torch) == "2.6.0" ? low.address : high.address);
  }
}

TEST(CachingAllocator, MergesWithFreeNeighbours) {
  CachingFixture f;
  const BlockRef a = f.allocate(512);
  const BlockRef b = f.allocate(1024);
  const BlockRef c = f.allocate(512);
  const BlockRef d = f.allocate(512);
  f.allocator.free(a);
  f.allocator.free(c);
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{
                            {0, 512, kFree}, {512, 1024, kUsed}, {1536, 512, kFree}, {2048, 512, kUsed}, {2560, 2 * kMiB - 2560, kFree}}));
  f.allocator.free(b);
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 2048, kFree}, {2048, 512, kUsed}, {2560, 2 * kMiB - 2560, kFree}}));
  f.allocator.free(d);
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 2 * kMiB, kFree}}));
  EXPECT_EQ(f.allocator.largest_free_block_bytes(), 2 * kMiB);
}

TEST(CachingAllocator, StreamsAndSizeClassesDoNotShare) {
  CachingFixture f;
  f.allocator.free(f.allocate(512, 0));
  f.allocate(512, 1);
  EXPECT_EQ(f.segments(), (std::vector<int64_t>{2 * kMiB, 2 * kMiB}));
  f.allocator.free(f.allocate(12 * kMiB, 0));
  f.allocate(512, 0);  // from the small pool
  EXPECT_EQ(f.offset(f.allocate(kMiB + 1, 0)), 4 * kMiB);
  EXPECT_EQ(f.segments(), (std::vector<int64_t>{2 * kMiB, 2 * kMiB, 12 * kMiB}));
}

TEST(CachingAllocator, EventsOfALife) {
  CachingFixture f;
  const BlockRef a = f.allocate(700, 1);
  f.allocator.free(a);
  f.allocator.empty_cache();
  EXPECT_EQ(f.actions, (std::vector<AllocatorAction>{{EventKind::segment_alloc, 1, kCachingBase, 2 * kMiB},
                                                     {EventKind::alloc, 1, kCachingBase, 700},
                                                     {EventKind::free_requested, 1, kCachingBase, 700},
                                                     {EventKind::free_completed, 1, kCachingBase, 700},
                                                     {EventKind::segment_free, 1, kCachingBase, 2 * kMiB}}));
  EXPECT_EQ(f.stats().reserved_bytes, 0);
  EXPECT_EQ(f.stats().peak_reserved_bytes, 2 * kMiB);
  EXPECT_EQ(f.driver.free_bytes(), 1000 * kMiB);
}

TEST(CachingAllocator, RoundsUpToDivisionsOfPowersOfTwo) {
  CachingFixture f("roundup_power2_divisions:4");
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(1000)), 1024);                // not above 4 * 512 B: 512 B steps
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(2049)), 2560);                // 2048, 2560, 3072, ...
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(1200 * kKiB)), 1280 * kKiB);  // 1 MiB, 1.25, ...
  EXPECT_EQ(f.allocator.size_bytes(f.allocate(33 * kMiB)), 40 * kMiB);
}

// ---- out of memory --------------------------------------------------------------------------------------------------------

TEST(CachingAllocator, GivesBackWhatIsCachedBeforeItIsOutOfMemory) {
  CachingFixture f("", 40 * kMiB);
  const BlockRef a = f.allocate(24 * kMiB);
  f.allocator.free(a);
  f.actions.clear();
  f.allocate(30 * kMiB);
  EXPECT_EQ(f.kinds(), (std::vector<EventKind>{EventKind::segment_free, EventKind::segment_alloc, EventKind::alloc}));
  EXPECT_EQ(f.stats().alloc_retries, 1);
  EXPECT_EQ(f.stats().ooms, 0);
}

TEST(CachingAllocator, SaysWhatWasFree) {
  CachingFixture f("", 64 * kMiB);
  f.allocate(30 * kMiB);
  f.allocate(512);
  f.actions.clear();
  EXPECT_EQ(f.allocate(33 * kMiB - 100), kNoBlock);
  EXPECT_EQ(f.actions, (std::vector<AllocatorAction>{{EventKind::oom, 0, static_cast<uint64_t>(32 * kMiB), 33 * kMiB}}));
  const OutOfMemory& oom = f.allocator.out_of_memory();
  EXPECT_EQ(oom.requested_bytes, 34 * kMiB);  // the segment
  EXPECT_EQ(oom.device_free_bytes, 32 * kMiB);
  EXPECT_EQ(oom.device_total_bytes, 64 * kMiB);
  EXPECT_EQ(oom.allocated_bytes, 30 * kMiB + 512);
  EXPECT_EQ(oom.unallocated_bytes, 2 * kMiB - 512);
  EXPECT_EQ(oom.private_pool_bytes, 0);
  EXPECT_EQ(oom.allowed_bytes, std::nullopt);
  EXPECT_EQ(f.stats().ooms, 1);
  EXPECT_EQ(f.stats().alloc_retries, 1);
}

TEST(CachingAllocator, AFractionLimitsWhatIsReserved) {
  CachingFixture f("", 100 * kMiB);
  f.allocator.set_memory_fraction(0.5);
  EXPECT_NE(f.allocate(50 * kMiB), kNoBlock);
  EXPECT_EQ(f.allocate(512), kNoBlock);
  EXPECT_EQ(f.allocator.out_of_memory().allowed_bytes, 50 * kMiB);
  EXPECT_EQ(f.allocator.out_of_memory().device_free_bytes, 50 * kMiB);
  f.allocator.set_memory_fraction(1);
  EXPECT_NE(f.allocate(512), kNoBlock);
}

// ---- settings -------------------------------------------------------------------------------------------------------------

TEST(CachingAllocator, BlocksAboveMaxSplitSizeStayWhole) {
  CachingFixture f("max_split_size_mb:30");
  const BlockRef big = f.allocate(60 * kMiB);
  f.allocator.free(big);
  // Below the limit: no block above it is split.
  EXPECT_EQ(f.offset(f.allocate(20 * kMiB)), 60 * kMiB);
  // Above the limit: a block is used whole, but not for a request that is 20 MiB smaller.
  EXPECT_EQ(f.offset(f.allocate(40 * kMiB)), 80 * kMiB);
  const BlockRef most = f.allocate(40 * kMiB + 512);
  EXPECT_EQ(f.offset(most), 0);
  EXPECT_EQ(f.allocator.size_bytes(most), 60 * kMiB);
}

TEST(CachingAllocator, AnOversizeBlockGoesBackFirst) {
  CachingFixture f("max_split_size_mb:30", 200 * kMiB);
  const BlockRef a = f.allocate(60 * kMiB);
  const BlockRef b = f.allocate(100 * kMiB);
  const BlockRef c = f.allocate(20 * kMiB);
  f.allocator.free(a);
  f.allocator.free(b);
  f.allocator.free(c);
  f.actions.clear();
  // 20 MiB are left. The smallest block that could hold 38 MiB is returned, and the rest stays cached.
  EXPECT_NE(f.allocate(38 * kMiB), kNoBlock);
  EXPECT_EQ(f.segments(), (std::vector<int64_t>{100 * kMiB, 20 * kMiB, 38 * kMiB}));
  EXPECT_EQ(f.stats().alloc_retries, 0);
}

TEST(CachingAllocator, SeveralOversizeBlocksGoBackWhenNoneIsEnough) {
  CachingFixture f("max_split_size_mb:30", 200 * kMiB);
  std::vector<BlockRef> blocks;
  for (const int64_t size : {40, 60, 50, 20}) blocks.push_back(f.allocate(size * kMiB));
  for (const BlockRef block : blocks) f.allocator.free(block);
  f.actions.clear();
  // No block holds 100 MiB. The largest are returned until 100 MiB are gained: 60 and 50. With the 30 MiB left that is enough.
  EXPECT_NE(f.allocate(100 * kMiB), kNoBlock);
  EXPECT_EQ(f.segments(), (std::vector<int64_t>{40 * kMiB, 20 * kMiB, 100 * kMiB}));
  EXPECT_EQ(f.actions[0].size_bytes, 60 * kMiB);
  EXPECT_EQ(f.actions[1].size_bytes, 50 * kMiB);
}

TEST(CachingAllocator, GarbageCollectionNeedsAFraction) {
  for (const bool with_fraction : {false, true}) {
    CachingFixture f("garbage_collection_threshold:0.5", 100 * kMiB);
    if (with_fraction) f.allocator.set_memory_fraction(0.99);
    f.allocator.free(f.allocate(20 * kMiB));
    f.allocator.free(f.allocate(30 * kMiB));  // idle for a shorter time
    f.allocate(10 * kMiB);                    // from the 20
    f.actions.clear();
    // 50 MiB are reserved, more than half of 99. Of the segments that are idle as a whole, those at least as old as the average are
    // returned.
    f.allocate(36 * kMiB);
    EXPECT_EQ(f.segments(),
              with_fraction ? (std::vector<int64_t>{20 * kMiB, 36 * kMiB}) : (std::vector<int64_t>{20 * kMiB, 30 * kMiB, 36 * kMiB}));
    EXPECT_EQ(f.stats().alloc_retries, 0);
  }
}

TEST(CachingAllocator, GarbageCollectionTakesTheOldFirst) {
  CachingFixture f("garbage_collection_threshold:0.5", 100 * kMiB);
  f.allocator.set_memory_fraction(0.99);
  const BlockRef a = f.allocate(20 * kMiB);
  const BlockRef b = f.allocate(24 * kMiB);
  const BlockRef c = f.allocate(12 * kMiB);
  f.allocator.free(c);
  for (int i = 0; i < 10; ++i) f.allocator.free(f.allocate(12 * kMiB));  // uses c's block again and again
  f.allocator.free(a);
  f.allocator.free(b);
  f.allocator.free(f.allocate(12 * kMiB));
  f.actions.clear();
  // 56 MiB of 49.5 allowed: 6.5 must be freed. a and b have been idle for 2 searches, c for 1.
  f.allocate(40 * kMiB);
  EXPECT_EQ(f.segments(), (std::vector<int64_t>{12 * kMiB, 40 * kMiB}));
}

// ---- expandable segments --------------------------------------------------------------------------------------------------

TEST(CachingAllocator, ExpandableSegmentsGrowInPages) {
  CachingFixture f("expandable_segments:True");
  f.allocate(25 * kMiB);
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 25 * kMiB, kUsed}, {25 * kMiB, 15 * kMiB, kFree}}));
  f.allocate(18 * kMiB);  // 15 are there, and 3 more need another page
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 25 * kMiB, kUsed}, {25 * kMiB, 18 * kMiB, kUsed}, {43 * kMiB, 17 * kMiB, kFree}}));
  EXPECT_EQ(f.actions, (std::vector<AllocatorAction>{{EventKind::segment_map, 0, kRange, 40 * kMiB},
                                                     {EventKind::alloc, 0, kRange, 25 * kMiB},
                                                     {EventKind::segment_map, 0, kRange + 40 * static_cast<uint64_t>(kMiB), 20 * kMiB},
                                                     {EventKind::alloc, 0, kRange + 25 * static_cast<uint64_t>(kMiB), 18 * kMiB}}));
  EXPECT_EQ(f.stats().segments, 0);  // the same count as PyTorch's
  EXPECT_EQ(f.stats().reserved_bytes, 60 * kMiB);
}

TEST(CachingAllocator, ExpandableSegmentsGiveBackWholePages) {
  CachingFixture f("expandable_segments:True");
  f.allocate(5 * kMiB);
  const BlockRef middle = f.allocate(50 * kMiB);
  f.allocate(5 * kMiB);
  f.allocator.free(middle);
  f.actions.clear();
  f.allocator.empty_cache();
  // The free block from 5 to 55 MiB contains the pages from 20 to 40.
  EXPECT_EQ(f.actions, (std::vector<AllocatorAction>{{EventKind::segment_unmap, 0, kRange + 20 * static_cast<uint64_t>(kMiB), 20 * kMiB}}));
  EXPECT_EQ(f.blocks(),
            (CachingFixture::Blocks{
                {0, 5 * kMiB, kUsed}, {5 * kMiB, 15 * kMiB, kFree}, {40 * kMiB, 15 * kMiB, kFree}, {55 * kMiB, 5 * kMiB, kUsed}}));
  // The hole is mapped again for a request that fits on neither side: from 5 on.
  f.actions.clear();
  EXPECT_EQ(f.offset(f.allocate(30 * kMiB), kRange), 5 * kMiB);
  EXPECT_EQ(f.actions[0], (AllocatorAction{EventKind::segment_map, 0, kRange + 20 * static_cast<uint64_t>(kMiB), 20 * kMiB}));
}

TEST(CachingAllocator, ExpandableSmallSegmentsHavePagesOfTwoMiB) {
  CachingFixture f("expandable_segments:True");
  const BlockRef a = f.allocate(kMiB);
  const BlockRef b = f.allocate(kMiB);
  const BlockRef c = f.allocate(512);
  EXPECT_EQ(f.stats().reserved_bytes, 4 * kMiB);
  f.allocator.free(a);
  f.allocator.free(b);
  f.allocator.empty_cache();
  EXPECT_EQ(f.stats().reserved_bytes, 2 * kMiB);
  f.allocator.free(c);
  f.allocator.empty_cache();
  EXPECT_EQ(f.stats().reserved_bytes, 0);
  EXPECT_TRUE(f.allocator.segments().empty());
}

TEST(CachingAllocator, ExpandableBlocksAreSplitToTheLast512Bytes) {
  CachingFixture f("expandable_segments:True");
  f.allocate(20 * kMiB - 512);
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 20 * kMiB - 512, kUsed}, {20 * kMiB - 512, 512, kFree}}));
}

TEST(CachingAllocator, ExpandableSegmentsAreOutOfMemoryWithNothingMappedInVain) {
  CachingFixture f("expandable_segments:True", 64 * kMiB);
  f.allocate(41 * kMiB);  // 60 MiB mapped
  EXPECT_EQ(f.allocate(30 * kMiB), kNoBlock);
  EXPECT_EQ(f.allocator.out_of_memory().requested_bytes, 30 * kMiB);
  EXPECT_EQ(f.allocator.out_of_memory().device_free_bytes, 4 * kMiB);
  EXPECT_EQ(f.stats().reserved_bytes, 60 * kMiB);
}

// ---- streams --------------------------------------------------------------------------------------------------------------

TEST(CachingAllocator, ABlockUsedElsewhereWaitsForTheNextAllocation) {
  CachingFixture f;
  const BlockRef a = f.allocate(512);
  f.allocator.record_stream(a, 1);
  f.allocator.free(a);  // stream 1 is not held: its event is done, but the allocator has not checked it yet
  EXPECT_EQ(f.stats().allocated_bytes, 0);
  EXPECT_EQ(f.stats().active_bytes, 512);
  EXPECT_EQ(std::get<2>(f.blocks()[0]), kPending);
  EXPECT_EQ(f.offset(f.allocate(512)), 0);
  EXPECT_EQ(f.stats().active_bytes, 512);
}

TEST(CachingAllocator, AHeldStreamKeepsBlocks) {
  CachingFixture f;
  const BlockRef a = f.allocate(512);
  f.allocator.record_stream(a, 1);
  f.allocator.record_stream(a, 2);
  f.allocator.record_stream(a, 0);  // its own stream: does nothing
  f.allocator.hold_stream(1);
  f.allocator.hold_stream(2);
  f.allocator.free(a);
  EXPECT_EQ(f.offset(f.allocate(512)), 512);
  f.allocator.finish_stream(1);
  EXPECT_EQ(f.offset(f.allocate(512)), 1024);
  f.allocator.finish_stream(2);
  EXPECT_EQ(f.offset(f.allocate(512)), 0);
}

TEST(CachingAllocator, ReclaimingWaitsForTheDevice) {
  CachingFixture f("", 40 * kMiB);
  const BlockRef a = f.allocate(24 * kMiB);
  f.allocator.record_stream(a, 1);
  f.allocator.hold_stream(1);
  f.allocator.free(a);
  f.actions.clear();
  EXPECT_NE(f.allocate(30 * kMiB), kNoBlock);
  EXPECT_EQ(f.kinds(),
            (std::vector<EventKind>{EventKind::free_completed, EventKind::segment_free, EventKind::segment_alloc, EventKind::alloc}));
}

TEST(CachingAllocator, FreeLaterCompletesWhenToldOrWhenReclaiming) {
  CachingFixture f("", 40 * kMiB);
  const BlockRef a = f.allocate(512);
  const uint32_t ticket_a = f.allocator.free_later(a);
  EXPECT_EQ(f.offset(f.allocate(512)), 512);
  f.allocator.complete(ticket_a);
  EXPECT_EQ(f.offset(f.allocate(512)), 0);
  const BlockRef b = f.allocate(24 * kMiB);
  const uint32_t ticket_b = f.allocator.free_later(b);
  EXPECT_NE(f.allocate(30 * kMiB), kNoBlock);
  f.actions.clear();
  f.allocator.complete(ticket_b);
  EXPECT_TRUE(f.actions.empty());
}

// ---- private pools --------------------------------------------------------------------------------------------------------

TEST(CachingAllocator, PrivatePoolsAreApart) {
  CachingFixture f;
  f.allocator.free(f.allocate(512));
  f.allocator.begin_pool(7, std::nullopt);
  const BlockRef a = f.allocate(512);
  f.allocator.end_pool(7);
  EXPECT_EQ(f.offset(a), 2 * kMiB);
  EXPECT_EQ(f.allocator.segments()[1].pool, 7U);
  f.allocator.free(a);
  EXPECT_EQ(f.offset(f.allocate(512)), 0);
  f.allocator.empty_cache();  // the graph may run again, so its memory stays
  EXPECT_EQ(f.stats().reserved_bytes, 4 * kMiB);
  f.allocator.release_pool(7);
  f.allocator.empty_cache();
  EXPECT_EQ(f.stats().reserved_bytes, 2 * kMiB);
}

TEST(CachingAllocator, APoolOfOneStream) {
  CachingFixture f;
  f.allocator.begin_pool(1, StreamIndex{2});
  f.allocate(512, 0);
  f.allocate(512, 2);
  EXPECT_EQ(f.allocator.segments()[0].pool, 0U);
  EXPECT_EQ(f.allocator.segments()[1].pool, 1U);
}

TEST(CachingAllocator, NothingIsReclaimedWhileAPoolIsBegun) {
  CachingFixture f("", 40 * kMiB);
  f.allocator.free(f.allocate(24 * kMiB));
  f.allocator.begin_pool(1, std::nullopt);
  EXPECT_EQ(f.allocate(30 * kMiB), kNoBlock);
  EXPECT_EQ(f.stats().alloc_retries, 0);
  f.allocator.end_pool(1);
  EXPECT_NE(f.allocate(30 * kMiB), kNoBlock);
}

TEST(CachingAllocator, OutOfMemoryCountsPrivatePools) {
  CachingFixture f("", 40 * kMiB);
  f.allocator.begin_pool(1, std::nullopt);
  const BlockRef a = f.allocate(12 * kMiB);
  f.allocate(512);
  f.allocator.free(a);
  f.allocator.end_pool(1);
  EXPECT_EQ(f.allocate(30 * kMiB), kNoBlock);
  const OutOfMemory& oom = f.allocator.out_of_memory();
  EXPECT_EQ(oom.private_pool_bytes, 14 * kMiB - 512);  // the free memory of that pool
  EXPECT_EQ(oom.allocated_bytes, 14 * kMiB);
  EXPECT_EQ(oom.unallocated_bytes, 0);
}

// ---- histories that begin in the middle -----------------------------------------------------------------------------------

TEST(CachingAllocator, RestoresSegments) {
  Segment small;
  small.address = kCachingBase + 6 * static_cast<uint64_t>(kMiB);
  small.size_bytes = 2 * kMiB;
  small.stream = 1;
  small.blocks = {
      {small.address, 512, 100, kUsed}, {small.address + 512, 1024, 1024, kPending}, {small.address + 1536, 2 * kMiB - 1536, 0, kFree}};
  Segment large;
  large.address = kCachingBase + 10 * static_cast<uint64_t>(kMiB);
  large.size_bytes = 20 * kMiB;
  large.large = true;
  large.blocks = {{large.address, 20 * kMiB, 0, kFree}};
  CachingFixture f("", 100 * kMiB);
  const std::vector<uint32_t> refs = f.allocator.restore({small, large});
  EXPECT_EQ(f.stats().reserved_bytes, 22 * kMiB);
  EXPECT_EQ(f.stats().segments, 2);
  EXPECT_EQ(f.stats().segment_allocs, 0);
  EXPECT_EQ(f.stats().allocated_bytes, 512);
  EXPECT_EQ(f.stats().active_bytes, 1536);
  EXPECT_EQ(f.stats().requested_bytes, 1124);
  EXPECT_EQ(f.driver.free_bytes(), 78 * kMiB);
  ASSERT_EQ(refs.size(), 4U);
  EXPECT_EQ(refs[2], kNoBlock);
  EXPECT_EQ(refs[3], kNoBlock);
  f.allocator.complete(refs[1]);
  f.allocator.free(refs[0]);
  EXPECT_EQ(f.allocator.address(f.allocate(kMiB, 1)), small.address);  // merged again
  EXPECT_EQ(f.allocator.address(f.allocate(5 * kMiB)), large.address);
  EXPECT_EQ(f.stats().segment_allocs, 0);
}

TEST(CachingAllocator, RestoresExpandableSegments) {
  // One range with a hole of 20 MiB between two mapped parts.
  Segment first;
  first.address = kRange;
  first.size_bytes = 20 * kMiB;
  first.large = first.expandable = true;
  first.blocks = {{kRange, 15 * kMiB, 15 * kMiB, kUsed}, {kRange + 15 * static_cast<uint64_t>(kMiB), 5 * kMiB, 0, kFree}};
  Segment second = first;
  second.address = kRange + 40 * static_cast<uint64_t>(kMiB);
  second.blocks = {{second.address, 20 * kMiB, 20 * kMiB, kUsed}};
  CachingFixture f("expandable_segments:True");
  f.allocator.restore({first, second});
  EXPECT_EQ(f.blocks(), (CachingFixture::Blocks{{0, 15 * kMiB, kUsed}, {15 * kMiB, 5 * kMiB, kFree}, {40 * kMiB, 20 * kMiB, kUsed}}));
  EXPECT_EQ(f.stats().reserved_bytes, 40 * kMiB);
  // 5 and the hole hold 22 MiB; one page is mapped.
  EXPECT_EQ(f.offset(f.allocate(22 * kMiB), kRange), 15 * kMiB);
  EXPECT_EQ(f.stats().reserved_bytes, 60 * kMiB);
  // No free block that is left can hold this: it goes after the second part.
  EXPECT_EQ(f.offset(f.allocate(30 * kMiB), kRange), 60 * kMiB);
}

}  // namespace
}  // namespace gpucast

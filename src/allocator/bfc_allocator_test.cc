#include "src/allocator/bfc_allocator.h"

#include <gtest/gtest.h>

#include <tuple>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

constexpr uint64_t kBfcBase = 0x200000000000;  // AscendingDriver's first segment

struct BfcFixture {
  AscendingDriver driver;
  BfcAllocator bfc;
  std::vector<AllocatorAction> actions;

  explicit BfcFixture(int64_t capacity_bytes, const std::string& conf = "backend:bfc")
      : driver(capacity_bytes), bfc(*parse_bfc_conf(conf), 3, &driver) {
    bfc.record_actions(&actions);
  }
  // (offset from the first segment, size) of every block, in use or not.
  using Blocks = std::vector<std::tuple<int64_t, int64_t, BlockState>>;
  Blocks blocks() const {
    Blocks out;
    for (const Segment& segment : bfc.segments()) {
      for (const SegmentBlock& block : segment.blocks) {
        out.emplace_back(static_cast<int64_t>(block.address - kBfcBase), block.size_bytes, block.state);
      }
    }
    return out;
  }
  std::vector<int64_t> regions() const {
    std::vector<int64_t> out;
    for (const Segment& segment : bfc.segments()) out.push_back(segment.size_bytes);
    return out;
  }
};

constexpr BlockState kBfcUsed = BlockState::allocated, kBfcFree = BlockState::inactive, kBfcPending = BlockState::pending_free;

TEST(BfcConf, IsForItsBackendOnly) {
  EXPECT_FALSE(parse_bfc_conf(""));
  EXPECT_FALSE(parse_bfc_conf("backend:native"));
  EXPECT_FALSE(parse_bfc_conf("allow_growth:False"));
  const BfcConf defaults = parse_bfc_conf(" backend : bfc ").value();
  EXPECT_TRUE(defaults.allow_growth);
  EXPECT_TRUE(defaults.garbage_collection);
  EXPECT_FALSE(defaults.coalesce_regions);
  EXPECT_TRUE(defaults.unknown.empty());
  const BfcConf conf = parse_bfc_conf(
                           "backend:bfc,allow_growth:False,garbage_collection:false,coalesce_regions:True,"
                           "fragmentation_fraction:0.25,per_process_memory_fraction:0.5")
                           .value();
  EXPECT_FALSE(conf.allow_growth);
  EXPECT_FALSE(conf.garbage_collection);
  EXPECT_TRUE(conf.coalesce_regions);
  EXPECT_EQ(conf.fragmentation_fraction, 0.25);
  EXPECT_EQ(conf.per_process_memory_fraction, 0.5);
}

TEST(BfcConf, NamesWhatItDoesNotKnow) {
  const BfcConf conf = parse_bfc_conf("max_split_size_mb:20,backend:bfc,allow_growth:maybe,fragmentation_fraction:2").value();
  EXPECT_EQ(conf.unknown, (std::vector<std::string>{"max_split_size_mb:20", "allow_growth:maybe", "fragmentation_fraction:2"}));
  EXPECT_TRUE(conf.allow_growth);
  EXPECT_EQ(conf.fragmentation_fraction, 0);
}

// The figures of TensorFlow's own test NoDups: requests of 1 to 1023 bytes need 654336 in all.
TEST(BfcAllocator, RoundsTo256Bytes) {
  BfcFixture f(kGiB);
  std::vector<BlockRef> blocks;
  for (int size = 1; size < 1024; ++size) blocks.push_back(f.bfc.allocate(size, 0));
  EXPECT_EQ(f.bfc.stats().allocated_bytes, 654336);
  EXPECT_EQ(f.bfc.stats().requested_bytes, 1023 * 1024 / 2);
  for (const BlockRef block : blocks) f.bfc.free(block);
  EXPECT_EQ(f.bfc.stats().allocated_bytes, 0);
  EXPECT_EQ(f.bfc.stats().peak_allocated_bytes, 654336);
  EXPECT_EQ(f.blocks(), (BfcFixture::Blocks{{0, 2 * kMiB, kBfcFree}}));
}

// TensorFlow's own test ExerciseCoalescing.
TEST(BfcAllocator, CoalescesSoThatRepetitionTakesNoMore) {
  BfcFixture f(kGiB, "backend:bfc,allow_growth:False");
  const BlockRef first = f.bfc.allocate(4096, 0);
  const uint64_t first_address = f.bfc.address(first);
  f.bfc.free(first);
  for (int i = 0; i < 1024; ++i) {
    const BlockRef blocks[] = {f.bfc.allocate(4096, 0), f.bfc.allocate(8 * kMiB, 0), f.bfc.allocate(16384, 0),
                               f.bfc.allocate(40 * kMiB, 0)};
    for (const BlockRef block : blocks) f.bfc.free(block);
  }
  EXPECT_EQ(f.bfc.stats().peak_allocated_bytes, 4096 + 8 * kMiB + 16384 + 40 * kMiB);
  EXPECT_EQ(f.bfc.address(f.bfc.allocate(4096, 0)), first_address);
  EXPECT_EQ(f.regions(), std::vector<int64_t>{kGiB});
}

// TensorFlow's own test TestCustomMemoryLimit.
TEST(BfcAllocator, StaysBelowItsLimit) {
  BfcFixture f(2 * kMiB);
  EXPECT_NE(f.bfc.allocate(256, 0), kNoBlock);
  EXPECT_EQ(f.bfc.allocate(8 * kMiB, 0), kNoBlock);
  EXPECT_EQ(f.bfc.stats().ooms, 1);
}

TEST(BfcAllocator, DoublesItsRegions) {
  BfcFixture f(kGiB);
  f.bfc.allocate(1, 0);          // 2 MiB; the next will have 4
  f.bfc.allocate(3 * kMiB, 0);   // 4; next 8
  f.bfc.allocate(20 * kMiB, 0);  // doubled until it fits: 32; the next is not doubled again
  f.bfc.allocate(32 * kMiB, 0);  // 32; next 64
  f.bfc.allocate(33 * kMiB, 0);  // 64
  EXPECT_EQ(f.regions(), (std::vector<int64_t>{2 * kMiB, 4 * kMiB, 32 * kMiB, 32 * kMiB, 64 * kMiB}));
  EXPECT_EQ(f.bfc.stats().reserved_bytes, 134 * kMiB);
  EXPECT_EQ(f.bfc.stats().segments, 5);
}

TEST(BfcAllocator, TakesTheRestWhenItIsLess) {
  BfcFixture f(10 * kMiB);
  f.bfc.allocate(2 * kMiB, 0);
  f.bfc.allocate(4 * kMiB, 0);
  f.bfc.allocate(4 * kMiB, 0);
  EXPECT_EQ(f.regions(), (std::vector<int64_t>{2 * kMiB, 4 * kMiB, 4 * kMiB}));
  EXPECT_EQ(f.bfc.allocate(1, 0), kNoBlock);
}

TEST(BfcAllocator, AsksForATenthLessUntilTheDriverHasIt) {
  BfcFixture f(100 * kMiB);
  ASSERT_TRUE(f.driver.allocate(60 * kMiB));  // another user of the card
  ASSERT_NE(f.bfc.allocate(33 * kMiB, 0), kNoBlock);
  // 64 MiB, then 60398080, 54358272, 48922624, 44030464 (42 pages, but 40 MiB are free), and finally this:
  EXPECT_EQ(f.regions(), std::vector<int64_t>{39627520});
  // The request uses 33 MiB of it. The rest is less than 33 MiB and less than 128 MiB, so it is not split off.
  EXPECT_EQ(f.bfc.stats().allocated_bytes, 39627520);
}

TEST(BfcAllocator, GivesUpBelowTheRequest) {
  BfcFixture f(100 * kMiB);
  ASSERT_TRUE(f.driver.allocate(70 * kMiB));
  EXPECT_EQ(f.bfc.allocate(33 * kMiB, 0), kNoBlock);
  ASSERT_EQ(f.actions.size(), 1U);
  EXPECT_EQ(f.actions[0], (AllocatorAction{EventKind::oom, 0, static_cast<uint64_t>(30 * kMiB), 33 * kMiB}));
  EXPECT_EQ(f.bfc.out_of_memory().requested_bytes, 33 * kMiB);
  EXPECT_EQ(f.bfc.out_of_memory().device_free_bytes, 30 * kMiB);
  EXPECT_EQ(f.bfc.out_of_memory().device_total_bytes, 100 * kMiB);
}

TEST(BfcAllocator, SplitsWhenTheRestIsAtLeastTheRequest) {
  BfcFixture f(kGiB);
  const BlockRef a = f.bfc.allocate(1536, 0);
  f.bfc.allocate(256, 0);
  f.bfc.free(a);
  const BlockRef b = f.bfc.allocate(1000, 0);  // rounded to 1024, the rest would have 512
  EXPECT_EQ(f.bfc.size_bytes(b), 1536);
  EXPECT_EQ(f.bfc.stats().allocated_bytes, 1536 + 256);
  EXPECT_EQ(f.bfc.stats().requested_bytes, 1000 + 256);
  f.bfc.free(b);
  const BlockRef c = f.bfc.allocate(768, 0);  // the rest has 768
  EXPECT_EQ(f.bfc.size_bytes(c), 768);
  EXPECT_EQ(f.blocks(),
            (BfcFixture::Blocks{{0, 768, kBfcUsed}, {768, 768, kBfcFree}, {1536, 256, kBfcUsed}, {1792, 2 * kMiB - 1792, kBfcFree}}));
}

TEST(BfcAllocator, SplitsWhatWouldWaste128MiB) {
  BfcFixture f(kGiB, "backend:bfc,allow_growth:False");
  const BlockRef a = f.bfc.allocate(300 * kMiB, 0);
  f.bfc.allocate(256, 0);
  f.bfc.free(a);
  const BlockRef b = f.bfc.allocate(173 * kMiB, 0);  // the rest has 127 MiB
  EXPECT_EQ(f.bfc.size_bytes(b), 300 * kMiB);
  f.bfc.free(b);
  EXPECT_EQ(f.bfc.size_bytes(f.bfc.allocate(172 * kMiB, 0)), 172 * kMiB);
}

TEST(BfcAllocator, FragmentationFractionSetsTheWaste) {
  BfcFixture f(kGiB, "backend:bfc,allow_growth:False,fragmentation_fraction:0.125");  // 128 MiB of 1 GiB: the same as the default
  const BlockRef a = f.bfc.allocate(300 * kMiB, 0);
  f.bfc.allocate(256, 0);
  f.bfc.free(a);
  const BlockRef b = f.bfc.allocate(173 * kMiB, 0);
  EXPECT_EQ(f.bfc.size_bytes(b), 300 * kMiB);
  BfcFixture g(kGiB, "backend:bfc,allow_growth:False,fragmentation_fraction:0.0625");  // 64 MiB
  const BlockRef c = g.bfc.allocate(300 * kMiB, 0);
  g.bfc.allocate(256, 0);
  g.bfc.free(c);
  EXPECT_EQ(g.bfc.size_bytes(g.bfc.allocate(173 * kMiB, 0)), 173 * kMiB);
}

TEST(BfcAllocator, TakesTheSmallestThenTheLowest) {
  BfcFixture f(kGiB);
  std::vector<BlockRef> blocks;
  for (const int64_t size : {4096, 256, 2048, 256, 2048, 256, 1024, 256}) blocks.push_back(f.bfc.allocate(size, 0));
  for (const size_t i : {0, 4, 2, 6}) f.bfc.free(blocks[i]);
  const BlockRef first = f.bfc.allocate(1500, 0);  // 1536: the smallest fitting size is 2048, and the lower of the two is taken
  EXPECT_EQ(f.bfc.address(first), kBfcBase + 4096 + 256);
  EXPECT_EQ(f.bfc.address(f.bfc.allocate(1500, 0)), kBfcBase + 4096 + 256 + 2048 + 256);
  EXPECT_EQ(f.bfc.address(f.bfc.allocate(1500, 0)), kBfcBase);  // the 4096 are split
  EXPECT_EQ(f.bfc.largest_free_block_bytes(), 2 * kMiB - 4096 - 2 * 2048 - 1024 - 4 * 256);
}

TEST(BfcAllocator, MergesWithBothNeighbours) {
  BfcFixture f(kGiB);
  const BlockRef a = f.bfc.allocate(256, 0);
  const BlockRef b = f.bfc.allocate(512, 0);
  const BlockRef c = f.bfc.allocate(1024, 0);
  const BlockRef d = f.bfc.allocate(256, 0);
  f.bfc.free(a);
  f.bfc.free(c);
  EXPECT_EQ(
      f.blocks(),
      (BfcFixture::Blocks{
          {0, 256, kBfcFree}, {256, 512, kBfcUsed}, {768, 1024, kBfcFree}, {1792, 256, kBfcUsed}, {2048, 2 * kMiB - 2048, kBfcFree}}));
  f.bfc.free(b);
  EXPECT_EQ(f.blocks(), (BfcFixture::Blocks{{0, 1792, kBfcFree}, {1792, 256, kBfcUsed}, {2048, 2 * kMiB - 2048, kBfcFree}}));
  f.bfc.free(d);
  EXPECT_EQ(f.blocks(), (BfcFixture::Blocks{{0, 2 * kMiB, kBfcFree}}));
}

TEST(BfcAllocator, ReleasesUnusedRegionsBeforeItIsOutOfMemory) {
  BfcFixture f(64 * kMiB);
  const BlockRef small = f.bfc.allocate(256, 0);        // region of 2 MiB
  const BlockRef large = f.bfc.allocate(20 * kMiB, 0);  // region of 32 MiB
  f.bfc.free(large);
  f.actions.clear();
  // 30 MiB are left for regions. The unused region is returned, and then all remaining memory becomes a region.
  ASSERT_NE(f.bfc.allocate(40 * kMiB, 1), kNoBlock);
  EXPECT_EQ(f.actions, (std::vector<AllocatorAction>{
                           {EventKind::segment_free, 0, kBfcBase + 2 * kMiB, 32 * kMiB},
                           {EventKind::segment_alloc, 1, kBfcBase + 2 * kMiB, 62 * kMiB},
                           {EventKind::alloc, 1, kBfcBase + 2 * kMiB, 40 * kMiB},
                       }));
  EXPECT_EQ(f.bfc.stats().alloc_retries, 1);
  f.bfc.free(small);
  EXPECT_EQ(f.regions(), (std::vector<int64_t>{2 * kMiB, 62 * kMiB}));
}

TEST(BfcAllocator, KeepsRegionsWhenTheyWouldNotDo) {
  BfcFixture f(64 * kMiB);
  f.bfc.allocate(20 * kMiB, 0);              // region of 32 MiB
  f.bfc.free(f.bfc.allocate(20 * kMiB, 0));  // and another one
  EXPECT_EQ(f.bfc.allocate(40 * kMiB, 0), kNoBlock);
  EXPECT_EQ(f.regions(), (std::vector<int64_t>{32 * kMiB, 32 * kMiB}));
}

// TensorFlow's own tests PhysicalAllocatorOomsFragmentation and VirtualAllocatorPromotesReuse: 128 blocks of 4 MiB in
// 512 MiB, all but the last freed, then one of 508 MiB.
TEST(BfcAllocator, RegionsStayApartUnlessCoalesced) {
  for (const bool coalesce : {false, true}) {
    BfcFixture f(512 * kMiB,
                 coalesce ? "backend:bfc,garbage_collection:False,coalesce_regions:True" : "backend:bfc,garbage_collection:False");
    std::vector<BlockRef> blocks;
    for (int i = 0; i < 128; ++i) blocks.push_back(f.bfc.allocate(4 * kMiB, 0));
    ASSERT_NE(blocks.back(), kNoBlock);
    EXPECT_EQ(f.bfc.stats().segment_allocs, 8);  // 4, 4, 8, ..., 256 MiB
    EXPECT_EQ(f.bfc.stats().segments, coalesce ? 1 : 8);
    blocks.pop_back();
    for (const BlockRef block : blocks) f.bfc.free(block);
    EXPECT_EQ(f.bfc.allocate(508 * kMiB, 0) != kNoBlock, coalesce);
  }
}

TEST(BfcAllocator, ACoalescedRegionGoesBackInItsParts) {
  BfcFixture f(64 * kMiB, "backend:bfc,coalesce_regions:True");
  const BlockRef a = f.bfc.allocate(2 * kMiB, 0);
  f.bfc.free(f.bfc.allocate(4 * kMiB, 0));
  EXPECT_EQ(f.regions(), std::vector<int64_t>{6 * kMiB});
  f.bfc.empty_cache();
  EXPECT_EQ(f.regions(), std::vector<int64_t>{6 * kMiB});
  f.bfc.free(a);
  f.bfc.empty_cache();
  EXPECT_TRUE(f.regions().empty());
  EXPECT_EQ(f.bfc.stats().segment_frees, 2);
  EXPECT_EQ(f.driver.free_bytes(), 64 * kMiB);
}

TEST(BfcAllocator, EmptyCacheNeedsGarbageCollection) {
  BfcFixture f(64 * kMiB, "backend:bfc,garbage_collection:False");
  f.bfc.free(f.bfc.allocate(1, 0));
  f.bfc.empty_cache();
  EXPECT_EQ(f.bfc.stats().reserved_bytes, 2 * kMiB);
}

TEST(BfcAllocator, AllMemoryAtOnceWithoutGrowth) {
  BfcFixture f(100 * kMiB, "backend:bfc,allow_growth:False,per_process_memory_fraction:0.5");
  EXPECT_TRUE(f.regions().empty());
  f.bfc.allocate(1, 0);
  EXPECT_EQ(f.regions(), std::vector<int64_t>{50 * kMiB});
  EXPECT_EQ(f.bfc.allocate(50 * kMiB, 0), kNoBlock);
  EXPECT_EQ(f.bfc.out_of_memory().allowed_bytes, 50 * kMiB);
  EXPECT_EQ(f.bfc.out_of_memory().allocated_bytes, 256);
  EXPECT_EQ(f.bfc.out_of_memory().unallocated_bytes, 50 * kMiB - 256);
}

TEST(BfcAllocator, AllStreamsShareOnePool) {
  BfcFixture f(kGiB);
  const BlockRef a = f.bfc.allocate(512, 0);
  const uint64_t address = f.bfc.address(a);
  f.bfc.free(a);
  f.bfc.begin_pool(1, std::nullopt);
  EXPECT_EQ(f.bfc.address(f.bfc.allocate(512, 2)), address);
}

TEST(BfcAllocator, ABlockUsedByABusyStreamWaits) {
  BfcFixture f(kGiB);
  const BlockRef a = f.bfc.allocate(256, 0);
  f.bfc.record_stream(a, 1);
  f.bfc.record_stream(a, 2);
  f.bfc.hold_stream(1);
  f.bfc.hold_stream(2);
  f.bfc.free(a);
  EXPECT_EQ(f.blocks(), (BfcFixture::Blocks{{0, 256, kBfcPending}, {256, 2 * kMiB - 256, kBfcFree}}));
  EXPECT_EQ(f.bfc.stats().allocated_bytes, 0);
  EXPECT_EQ(f.bfc.stats().active_bytes, 256);
  f.bfc.finish_stream(1);
  EXPECT_EQ(f.bfc.stats().active_bytes, 256);
  f.bfc.finish_stream(2);
  EXPECT_EQ(f.bfc.stats().active_bytes, 0);
  EXPECT_EQ(f.blocks(), (BfcFixture::Blocks{{0, 2 * kMiB, kBfcFree}}));
  // A stream that is not held has finished its work when free() is called.
  const BlockRef b = f.bfc.allocate(256, 0);
  f.bfc.record_stream(b, 1);
  f.bfc.free(b);
  EXPECT_EQ(f.bfc.stats().active_bytes, 0);
}

TEST(BfcAllocator, WaitsForBlocksBeforeItIsOutOfMemory) {
  BfcFixture f(4 * kMiB, "backend:bfc,allow_growth:False");
  const BlockRef a = f.bfc.allocate(1 * kMiB, 0);
  const BlockRef b = f.bfc.allocate(1 * kMiB, 0);
  const BlockRef c = f.bfc.allocate(1 * kMiB, 0);
  const uint32_t ticket_a = f.bfc.free_later(a);
  f.bfc.free_later(c);
  const uint32_t ticket_b = f.bfc.free_later(b);
  // 1 MiB is left. When the first two are complete (a, then c next to the rest), 2 MiB are free in one piece.
  EXPECT_NE(f.bfc.allocate(2 * kMiB, 0), kNoBlock);
  EXPECT_EQ(f.bfc.stats().alloc_retries, 2);
  EXPECT_EQ(f.blocks(), (BfcFixture::Blocks{{0, kMiB, kBfcFree}, {kMiB, kMiB, kBfcPending}, {2 * kMiB, 2 * kMiB, kBfcUsed}}));
  f.bfc.complete(ticket_a);  // it was completed already
  f.bfc.complete(ticket_b);
  EXPECT_EQ(f.blocks(), (BfcFixture::Blocks{{0, 2 * kMiB, kBfcFree}, {2 * kMiB, 2 * kMiB, kBfcUsed}}));
}

TEST(BfcAllocator, AHistoryFromTheMiddleBeginsWithItsBlocks) {
  Segment segment;
  segment.address = 0x7f0000000000;
  segment.size_bytes = 20 * kMiB;
  segment.stream = 1;
  segment.blocks = {{segment.address, 2 * kMiB, 2 * kMiB - 1, kBfcUsed},
                    {segment.address + 2 * kMiB, 2 * kMiB, 0, kBfcFree},
                    {segment.address + 4 * kMiB, 16 * kMiB, 16 * kMiB, kBfcPending}};
  BfcFixture f(kGiB);
  const std::vector<uint32_t> refs = f.bfc.restore({segment});
  ASSERT_EQ(refs.size(), 3U);
  EXPECT_EQ(refs[1], kNoBlock);
  EXPECT_EQ(f.bfc.address(refs[0]), kBfcBase);
  EXPECT_EQ(f.bfc.stats().allocated_bytes, 2 * kMiB);
  EXPECT_EQ(f.bfc.stats().active_bytes, 18 * kMiB);
  f.bfc.complete(refs[2]);
  EXPECT_EQ(f.bfc.stats().active_bytes, 2 * kMiB);
}

}  // namespace
}  // namespace gpucast

#include "src/lifetime/profile_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace gpucast {
namespace {

ProfileMemory profile_event(uint64_t address, int64_t bytes, int device_type = 0, int device_id = -1) {
  ProfileMemory out;
  out.address = address;
  out.bytes = bytes;
  out.device_type = static_cast<int16_t>(device_type);
  out.device_id = static_cast<int16_t>(device_id);
  return out;
}

TEST(PairBlocks, PairsByAddressAndTakesAnAddressAgain) {
  const ProfileBlocks out = pair_blocks({profile_event(1, 100), profile_event(2, 50), profile_event(1, -100), profile_event(1, 30)}, 0);
  ASSERT_EQ(out.blocks.size(), 3u);
  EXPECT_EQ(out.blocks[0].free_event, 2u);
  EXPECT_EQ(out.blocks[1].free_event, ProfileBlock::kNever);
  EXPECT_EQ(out.blocks[2].size_bytes, 30);
  EXPECT_EQ(out.blocks[2].free_event, ProfileBlock::kNever);
  EXPECT_EQ(out.allocated_bytes, 180);
  EXPECT_EQ(out.frees_missing, 0);
}

TEST(PairBlocks, AFreeWithoutAnAllocationIsABlockFromBefore) {
  const ProfileBlocks out = pair_blocks({profile_event(1, 100), profile_event(9, -64)}, 0);
  ASSERT_EQ(out.blocks.size(), 2u);
  EXPECT_TRUE(out.blocks[1].before_start());
  EXPECT_EQ(out.blocks[1].size_bytes, 64);
  EXPECT_EQ(out.allocated_bytes, 100);
}

TEST(PairBlocks, ALostFreeEndsTheBlockWhereItsAddressIsUsedAgain) {
  const ProfileBlocks out = pair_blocks({profile_event(1, 100), profile_event(1, 70)}, 0);
  EXPECT_EQ(out.frees_missing, 1);
  EXPECT_EQ(out.blocks[0].free_event, 1u);
  EXPECT_EQ(out.blocks[1].free_event, ProfileBlock::kNever);
}

TEST(PairBlocks, TakesOneDeviceOfTheKindOnly) {
  const std::vector<ProfileMemory> events = {profile_event(1, 100), profile_event(1, 8, 1, 0), profile_event(2, 16, 1, 1),
                                             profile_event(1, -8, 1, 0)};
  EXPECT_EQ(pair_blocks(events, 0).blocks.size(), 1u);
  const ProfileBlocks cuda = pair_blocks(events, 1);
  ASSERT_EQ(cuda.blocks.size(), 1u);
  EXPECT_EQ(cuda.blocks[0].free_event, 3u);
}

// After every event, the bytes of alive blocks equal the running sum of the events.
TEST(PairBlocks, PropertyBytesAliveAreTheEventsSum) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<ProfileMemory> events;
    std::map<uint64_t, int64_t> live;
    std::vector<int64_t> sums;
    int64_t sum = 0;
    for (int i = 0; i < 300; ++i) {
      const uint64_t address = random() % 20;
      const auto found = live.find(address);
      if (found == live.end()) {
        const auto bytes = static_cast<int64_t>(1 + random() % 1000);
        live[address] = bytes;
        events.push_back(profile_event(address, bytes));
        sum += bytes;
      } else {
        events.push_back(profile_event(address, -found->second));
        sum -= found->second;
        live.erase(found);
      }
      sums.push_back(sum);
    }
    const ProfileBlocks out = pair_blocks(events, 0);
    for (uint32_t at = 0; at < events.size(); ++at) {
      int64_t alive = 0;
      for (const ProfileBlock& block : out.blocks) alive += block.alloc_event <= at && block.free_event > at ? block.size_bytes : 0;
      ASSERT_EQ(alive, sums[at]) << "round " << round << ", event " << at;
    }
  }
}

}  // namespace
}  // namespace gpucast

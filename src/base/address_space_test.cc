#include "src/base/address_space.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

constexpr uint64_t kTop = uint64_t{0x7000} << 32;

// Returns addresses downwards from kTop, `limit_bytes` in all.
AddressSpace::Reserve downwards(uint64_t limit_bytes = kTop / 2) {
  return [next = kTop, floor = kTop - limit_bytes](uint64_t size, uint64_t alignment) mutable -> uint64_t {
    const uint64_t start = (next - size) / alignment * alignment;
    if (start < floor || start > next) return 0;
    return next = start;
  };
}

AddressSpace device(AddressSpace::Reserve reserve = downwards()) { return AddressSpace(std::move(reserve), 2 * kMiB, 32 * kMiB); }

TEST(AddressSpace, NewRangesLieBelowTheLast) {
  AddressSpace space = device();
  EXPECT_EQ(space.allocate(20 * kMiB), kTop - 32 * kMiB);
  EXPECT_EQ(space.allocate(20 * kMiB), kTop - 64 * kMiB);
  EXPECT_EQ(space.reserved_bytes(), 64 * kMiB);
  EXPECT_EQ(space.allocated_bytes(), 40 * kMiB);
}

TEST(AddressSpace, TakesTheLowestPlaceThatFits) {
  AddressSpace space = device();
  const uint64_t upper = space.allocate(20 * kMiB);
  const uint64_t lower = space.allocate(20 * kMiB);
  EXPECT_EQ(space.allocate(1), lower + 20 * kMiB);
  EXPECT_EQ(space.allocate(12 * kMiB), upper + 20 * kMiB) << "10 MiB are left in the lower range";
  EXPECT_EQ(space.allocate(10 * kMiB), lower + 22 * kMiB);
}

TEST(AddressSpace, RangesAreMultiplesOf32MiBAndDoNotMerge) {
  AddressSpace space = device();
  const uint64_t big = space.allocate(70 * kMiB);
  EXPECT_EQ(big, kTop - 96 * kMiB);
  EXPECT_EQ(space.free(big), 70 * kMiB);
  const uint64_t other = space.allocate(98 * kMiB);
  EXPECT_EQ(other, kTop - (96 + 128) * kMiB);
  // 30 MiB are free after `other`, and 96 MiB directly after those: no allocation crosses the border.
  EXPECT_EQ(space.allocate(60 * kMiB), big);
  EXPECT_EQ(space.allocate(30 * kMiB), other + 98 * kMiB);
}

TEST(AddressSpace, FreedNeighboursBecomeOnePlace) {
  AddressSpace space = device();
  uint64_t blocks[16];
  for (uint64_t& block : blocks) block = space.allocate(2 * kMiB);
  for (const int i : {3, 5, 4}) EXPECT_EQ(space.free(blocks[i]), 2 * kMiB);
  EXPECT_EQ(space.allocate(6 * kMiB), blocks[3]);
  EXPECT_EQ(space.free(blocks[3] + 2 * kMiB), 0u) << "not an allocation's start";
}

TEST(AddressSpace, FindsTheAllocationThatHoldsAnAddress) {
  AddressSpace space = device();
  const uint64_t address = space.allocate(3 * kMiB);
  uint64_t start = 0, size = 0;
  EXPECT_TRUE(space.find(address + 4 * kMiB - 1, &start, &size));
  EXPECT_EQ(start, address);
  EXPECT_EQ(size, 4 * kMiB);
  EXPECT_FALSE(space.find(address + 4 * kMiB, &start, &size));
  EXPECT_FALSE(space.find(address - 1, &start, &size));
}

TEST(AddressSpace, SaysWhenThereIsNoRoom) {
  AddressSpace space = device(downwards(64 * kMiB));
  EXPECT_EQ(space.allocate(0), 0u);
  EXPECT_EQ(space.allocate(65 * kMiB), 0u);
  EXPECT_EQ(space.allocate(UINT64_MAX), 0u);
  EXPECT_NE(space.allocate(64 * kMiB), 0u);
  EXPECT_EQ(space.allocate(1), 0u);
}

TEST(AddressSpace, JoinsEmptyRangesWhenAddressesRunOut) {
  AddressSpace space = device(downwards(64 * kMiB));
  const uint64_t a = space.allocate(32 * kMiB), b = space.allocate(32 * kMiB);
  space.free(a);
  EXPECT_EQ(space.allocate(64 * kMiB), 0u) << "one of the two is in use";
  space.free(b);
  EXPECT_EQ(space.allocate(64 * kMiB), b);
}

TEST(AddressSpace, GivesUpOnlyEmptyRanges) {
  AddressSpace space = device();
  const uint64_t upper = space.allocate(32 * kMiB), lower = space.allocate(30 * kMiB);
  EXPECT_EQ(space.release_empty_range(), 0u);
  space.free(lower);
  EXPECT_EQ(space.release_empty_range(), lower);
  EXPECT_EQ(space.release_empty_range(), 0u);
  EXPECT_EQ(space.reserved_bytes(), 32 * kMiB);
  space.free(upper);
  EXPECT_EQ(space.allocate(2 * kMiB), upper) << "the lower range is gone";
}

// In a random sequence allocations never overlap, and when all are freed nothing is left.
TEST(AddressSpace, HoldsUnderRandomUse) {
  AddressSpace space = device();
  std::mt19937 random(7);
  std::map<uint64_t, uint64_t> live;
  uint64_t total = 0;
  for (int i = 0; i < 4000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const uint64_t size = (random() % 40 + 1) * 2 * kMiB;
      const uint64_t address = space.allocate(size);
      ASSERT_NE(address, 0u);
      ASSERT_EQ(address % (2 * kMiB), 0u);
      const auto next = live.lower_bound(address);
      if (next != live.end()) {
        ASSERT_LE(address + size, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, address);
      }
      live[address] = size;
      total += size;
    } else {
      const auto victim = std::next(live.begin(), random() % live.size());
      ASSERT_EQ(space.free(victim->first), victim->second);
      total -= victim->second;
      live.erase(victim);
    }
    ASSERT_EQ(space.allocated_bytes(), total);
    ASSERT_LE(total, space.reserved_bytes());
  }
  for (const auto& [address, size] : live) ASSERT_EQ(space.free(address), size);
  EXPECT_EQ(space.allocated_bytes(), 0u);
}

TEST(AddressSpace, PlacesAboveAllThatLivesWhenAskedTo) {
  constexpr uint64_t kStart = 0x200000000000;
  const AddressSpace* asking = nullptr;
  AddressSpace space([&asking](uint64_t, uint64_t) { return asking->end() == 0 ? kStart : asking->end(); }, 2 * kMiB, 2 * kMiB,
                     AddressSpace::Placement::above_all);
  asking = &space;
  EXPECT_EQ(space.allocate(3 * kMiB), kStart);
  EXPECT_EQ(space.allocate(2 * kMiB), kStart + 4 * kMiB);
  EXPECT_EQ(space.free(kStart), 4 * kMiB);
  EXPECT_EQ(space.free(kStart), 0);
  EXPECT_EQ(space.allocate(2 * kMiB), kStart + 6 * kMiB) << "the gap stays";
  EXPECT_EQ(space.allocated_bytes(), 4 * kMiB);
  EXPECT_EQ(space.reserved_bytes(), 4 * kMiB);
  EXPECT_EQ(space.free(kStart + 4 * kMiB), 2 * kMiB);
  EXPECT_EQ(space.free(kStart + 6 * kMiB), 2 * kMiB);
  EXPECT_EQ(space.allocate(2 * kMiB), kStart);
}

}  // namespace
}  // namespace gpucast

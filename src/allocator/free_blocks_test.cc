#include "src/allocator/free_blocks.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

namespace gpucast {
namespace {

using Key = std::tuple<int64_t, uint32_t, uint64_t>;  // size, order, address

Key key(const FreeBlocks::Entry& entry) { return {entry.size_bytes, entry.order, entry.address}; }

std::vector<Key> all(const FreeBlocks& blocks) {
  std::vector<Key> out;
  blocks.for_each([&](const FreeBlocks::Entry& entry) { out.push_back(key(entry)); });
  return out;
}

TEST(FreeBlocks, OrdersBySizeThenSegmentThenAddress) {
  FreeBlocks blocks;
  EXPECT_TRUE(blocks.empty());
  EXPECT_TRUE(blocks.at_end(blocks.lower_bound(1)));
  EXPECT_TRUE(blocks.at_end(blocks.begin()));
  blocks.insert({512, 0x3000, 1, 0});
  blocks.insert({512, 0x1000, 2, 1});
  blocks.insert({512, 0x2000, 1, 2});
  blocks.insert({256, 0x9000, 7, 3});
  blocks.insert({1024, 0x0500, 0, 4});
  EXPECT_EQ(all(blocks), (std::vector<Key>{{256, 7, 0x9000}, {512, 1, 0x2000}, {512, 1, 0x3000}, {512, 2, 0x1000}, {1024, 0, 0x500}}));
  EXPECT_EQ(blocks[blocks.lower_bound(300)].block, 2U);
  EXPECT_EQ(blocks[blocks.lower_bound(512, 1, 0x2001)].block, 0U);
  EXPECT_EQ(blocks.largest_bytes(), 1024);
  EXPECT_TRUE(blocks.at_end(blocks.lower_bound(1025)));
  blocks.erase(512, 1, 0x2000);
  EXPECT_EQ(blocks[blocks.lower_bound(300)].block, 0U);
}

// Up to 20,000 entries; each step gives the same result as std::set.
TEST(FreeBlocks, AgreesWithASet) {
  for (const uint32_t seed : {1U, 2U, 3U}) {
    std::mt19937_64 random(seed);
    FreeBlocks blocks;
    std::set<Key> reference;
    std::vector<Key> present;
    const auto compare = [&] { EXPECT_EQ(all(blocks), std::vector<Key>(reference.begin(), reference.end())); };
    size_t most = 0;
    for (int step = 0; step < 120000; ++step) {
      // Grows for a while, then shrinks to nothing, and again.
      const bool growing = step % 60000 < 35000;
      if (!present.empty() && random() % 8 < (growing ? 2U : 7U)) {
        const size_t at = random() % present.size();
        const auto [size, order, address] = present[at];
        blocks.erase(size, order, address);
        reference.erase(present[at]);
        present[at] = present.back();
        present.pop_back();
      } else {
        const Key fresh{static_cast<int64_t>(random() % (seed == 2 ? 4 : 4000)) * 512, static_cast<uint32_t>(random() % 3),
                        random() % 1000000};
        if (!reference.insert(fresh).second) continue;
        blocks.insert({std::get<0>(fresh), std::get<2>(fresh), std::get<1>(fresh), static_cast<uint32_t>(step)});
        present.push_back(fresh);
      }
      most = std::max(most, present.size());
      ASSERT_EQ(blocks.empty(), reference.empty());
      if (!reference.empty()) {
        ASSERT_EQ(blocks.largest_bytes(), std::get<0>(*reference.rbegin()));
      }
      const Key wanted{static_cast<int64_t>(random() % 4100) * 512, static_cast<uint32_t>(random() % 3), random() % 1000000};
      const auto position = blocks.lower_bound(std::get<0>(wanted), std::get<1>(wanted), std::get<2>(wanted));
      const auto expected = reference.lower_bound(wanted);
      ASSERT_EQ(blocks.at_end(position), expected == reference.end());
      if (expected != reference.end()) {
        ASSERT_EQ(key(blocks[position]), *expected);
        const auto next = blocks.next(position);
        ASSERT_EQ(blocks.at_end(next), std::next(expected) == reference.end());
        if (!blocks.at_end(next)) {
          ASSERT_EQ(key(blocks[next]), *std::next(expected));
        }
      }
      ASSERT_EQ(blocks.at_begin(position), expected == reference.begin());
      if (expected != reference.begin()) {
        ASSERT_EQ(key(blocks[blocks.previous(position)]), *std::prev(expected));
      }
      if (step % 10000 == 0) compare();
    }
    EXPECT_GT(most, 10000U);
    compare();
  }
}

}  // namespace
}  // namespace gpucast

// The expected orders were printed by a program that includes PyTorch's own c10/util/flat_hash_map.h (2.6 and 2.14 agree).
#include "src/allocator/stream_table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpucast {
namespace {

constexpr uint64_t kCuda = uint64_t{1} << 56;  // device type in a stream's hash

// Hashes of the default stream and of streams 1, 2, ... from PyTorch's pool.
uint64_t pool_hash(uint64_t stream) { return stream == 0 ? kCuda : kCuda | (stream - 1) << 5 | 3; }

std::vector<uint64_t> pool_hashes(uint64_t count) {
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < count; ++i) hashes.push_back(pool_hash(i));
  return hashes;
}

using FrameOrder = std::vector<int>;

FrameOrder order(StreamTable* table) {
  FrameOrder out;
  table->visit([&](uint32_t stream) {
    out.push_back(static_cast<int>(stream));
    return false;
  });
  return out;
}

FrameOrder order_of_pool_streams(uint32_t count) {
  const std::vector<uint64_t> hashes = pool_hashes(count);
  StreamTable table(&hashes);
  for (uint32_t i = 0; i < count; ++i) table.insert(i);
  return order(&table);
}

TEST(StreamTable, VisitsAsPyTorchDoes) {
  EXPECT_EQ(order_of_pool_streams(0), (FrameOrder{}));
  EXPECT_EQ(order_of_pool_streams(1), (FrameOrder{0}));
  EXPECT_EQ(order_of_pool_streams(2), (FrameOrder{0, 1}));
  EXPECT_EQ(order_of_pool_streams(3), (FrameOrder{0, 2, 1}));
  EXPECT_EQ(order_of_pool_streams(5), (FrameOrder{0, 4, 3, 2, 1}));
  EXPECT_EQ(order_of_pool_streams(9), (FrameOrder{5, 0, 4, 8, 3, 7, 2, 6, 1}));
  EXPECT_EQ(order_of_pool_streams(17), (FrameOrder{5, 14, 0, 9, 13, 4, 8, 12, 3, 16, 7, 2, 11, 6, 15, 1, 10}));
  EXPECT_EQ(order_of_pool_streams(33), (FrameOrder{32, 14, 23, 5,  0, 27, 18, 9,  31, 22, 13, 4, 26, 17, 8, 30, 12,
                                                   21, 3,  16, 25, 7, 29, 20, 11, 2,  24, 15, 6, 28, 19, 1, 10}));
}

TEST(StreamTable, RemovesWhileItVisits) {
  const std::vector<uint64_t> hashes = pool_hashes(17);
  StreamTable table(&hashes);
  for (uint32_t i = 0; i < 17; ++i) table.insert(i);
  FrameOrder visited;
  table.visit([&](uint32_t stream) {
    visited.push_back(stream);
    return stream % 2 == 0;
  });
  EXPECT_EQ(visited, order_of_pool_streams(17));
  EXPECT_EQ(order(&table), (FrameOrder{5, 9, 13, 3, 7, 11, 15, 1}));
  for (uint32_t i = 0; i < 17; i += 4) table.insert(i);
  EXPECT_EQ(order(&table), (FrameOrder{5, 0, 9, 13, 4, 8, 12, 3, 16, 7, 11, 15, 1}));
}

TEST(StreamTable, InsertingTwiceChangesNothing) {
  const std::vector<uint64_t> hashes = pool_hashes(9);
  StreamTable table(&hashes);
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < 9; ++i) table.insert(i);
  }
  EXPECT_EQ(order(&table), (FrameOrder{5, 0, 4, 8, 3, 7, 2, 6, 1}));
}

TEST(StreamTable, OrderDependsOnTheHistoryToo) {
  const std::vector<uint64_t> hashes = pool_hashes(12);
  StreamTable table(&hashes);
  for (uint32_t i = 12; i-- > 0;) table.insert(i);
  EXPECT_EQ(order(&table), (FrameOrder{5, 0, 9, 4, 8, 3, 7, 11, 2, 6, 10, 1}));
}

TEST(StreamTable, EqualHashes) {
  const std::vector<uint64_t> hashes(7, 42);
  StreamTable table(&hashes);
  for (uint32_t i = 0; i < 7; ++i) table.insert(i);
  EXPECT_EQ(order(&table), (FrameOrder{0, 1, 2, 3, 4, 5, 6}));
}

TEST(StreamTable, StreamsThatAreNotPyTorchs) {
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < 12; ++i) hashes.push_back(kCuda | (0x55d5c0000000 + 0x5a0 * i));
  StreamTable table(&hashes);
  for (uint32_t i = 0; i < 12; ++i) table.insert(i);
  EXPECT_EQ(order(&table), (FrameOrder{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST(StreamTable, ClearKeepsItsSizeAndResetDoesNot) {
  const std::vector<uint64_t> hashes = pool_hashes(33);
  StreamTable table(&hashes);
  for (uint32_t i = 0; i < 33; ++i) table.insert(i);
  table.reset();
  EXPECT_TRUE(table.empty());
  for (uint32_t i = 0; i < 5; ++i) table.insert(i);
  EXPECT_EQ(order(&table), order_of_pool_streams(5));
  table.clear();
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(order(&table), FrameOrder{});
}

// 20,000 random steps. The digest of all visited streams is compared with the digest of PyTorch's own table.
TEST(StreamTable, LongRandomHistories) {
  const uint64_t kDigests[] = {15613431924303471592ULL, 609679255614944836ULL, 130924726726793506ULL};
  const size_t kLeft[] = {7, 2, 2};
  for (uint64_t kind = 0; kind < 3; ++kind) {
    uint64_t state = kind + 1;
    const auto next = [&] {
      state = state * 6364136223846793005 + 1442695040888963407;
      return state >> 33;
    };
    std::vector<uint64_t> hashes;
    for (uint64_t i = 0; i < 64; ++i) {
      if (kind == 0) hashes.push_back(pool_hash(i));
      if (kind == 1) {
        const uint64_t high = next();
        hashes.push_back(high << 31 | next());
      }
      if (kind == 2) hashes.push_back(next() % 16);
    }
    StreamTable table(&hashes);
    uint64_t digest = 1469598103934665603ULL;
    const auto note = [&](uint64_t value) { digest = (digest ^ value) * 1099511628211ULL; };
    const uint64_t streams = kind == 2 ? 24 : 64;
    for (int step = 0; step < 20000; ++step) {
      const uint64_t what = next() % 8;
      if (what < 5) {
        table.insert(static_cast<uint32_t>(next() % streams));
      } else if (what < 7) {
        const uint64_t modulus = next() % 5 + 2;
        const uint64_t rest = next() % modulus;
        table.visit([&](uint32_t stream) {
          note(stream);
          return stream % modulus == rest;
        });
        note(1000);
      } else if (next() % 16 == 0) {
        table.clear();
      }
    }
    const FrameOrder left = order(&table);
    for (const int stream : left) note(static_cast<uint64_t>(stream));
    EXPECT_EQ(digest, kDigests[kind]) << "kind " << kind;
    EXPECT_EQ(left.size(), kLeft[kind]) << "kind " << kind;
  }
}

}  // namespace
}  // namespace gpucast

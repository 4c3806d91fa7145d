#include "src/occupancy/counters.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

constexpr CounterConstants kCounters = {.empty_ns = 3000, .uneven = 0.04, .most_empty = 0.85, .early_warps = 0.9};

Occupancy full(int64_t waves) {
  Occupancy out;
  out.waves = waves;
  out.achieved = 0.5;
  out.sm_active = 1;
  return out;
}

TEST(CounterShares, LongKernelsShowTheirGrid) {
  const CounterShares shares = counter_shares(full(10'000), 1, 1e9, kCounters);
  EXPECT_NEAR(shares.occupancy, 0.5, 0.001);
  EXPECT_NEAR(shares.sm_active, 1, 0.001);
}

TEST(CounterShares, ShortKernelsAreMostlyEmpty) {
  EXPECT_NEAR(counter_shares(full(10'000), 1, 6000, kCounters).sm_active, 0.5, 0.001);
  EXPECT_DOUBLE_EQ(counter_shares(full(1), 1, 100, kCounters).sm_active, 1 - kCounters.most_empty) << "shorter than the empty time";
  EXPECT_EQ(counter_shares(full(1), 1, 0, kCounters).sm_active, 0);
}

TEST(CounterShares, FewLongBlocksEndUnevenly) {
  // 0.04 of a block's time for one wave; for 16 waves, four times 0.04 of a sixteenth.
  EXPECT_NEAR(counter_shares(full(1), 1, 1e9, kCounters).sm_active, 0.96, 1e-5);
  EXPECT_NEAR(counter_shares(full(16), 1, 1e9, kCounters).sm_active, 0.99, 1e-5);
}

TEST(CounterShares, ThePartialWaveIsShorterThanAFullOne) {
  Occupancy grid;
  grid.resident.blocks = 4;
  grid.warps = 32;
  grid.theoretical = 0.5;
  grid.waves = 2;
  grid.tail = 0.125;  // half of the multiprocessors have one block
  CounterConstants counters = {.busy_warps = 8};
  EXPECT_DOUBLE_EQ(counter_shares(grid, 1, 1e6, counters).sm_active, (1 + 0.25 * 0.5) / 1.25);
  EXPECT_DOUBLE_EQ(counter_shares(grid, 1, 1e6, counters).occupancy, 0.5 * (1 + 0.25 * 0.125) / 1.25);
  counters.busy_warps = 32;
  EXPECT_DOUBLE_EQ(counter_shares(grid, 1, 1e6, counters).sm_active, (1 + 0.5) / 2) << "one block alone needs as long as four together";
  grid.tail = 1;
  EXPECT_DOUBLE_EQ(counter_shares(grid, 1, 1e6, counters).occupancy, 0.5);
}

TEST(CounterShares, WarpsThatEndEarlyCountLess) { EXPECT_NEAR(counter_shares(full(10'000), 0.75, 1e9, kCounters).occupancy, 0.375, 0.001); }

}  // namespace
}  // namespace gpucast

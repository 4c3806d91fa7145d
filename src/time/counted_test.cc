#include <gtest/gtest.h>

#include "gpucast/gpu.h"
#include "src/time/duration.h"
#include "src/time/kinds.h"

namespace gpucast {
namespace {

const CardRates& counted_card() {
  static const CardRates kRates = card_rates(find_gpu("a100-80"));
  return kRates;
}

// A copy of `bytes` that coalesces wholly.
Operation copy_of(double bytes) {
  Operation out;
  out.kind = OperationKind::compiled;
  out.counted.blocks = bytes / 4096;
  out.counted.block_threads = 128;
  out.counted.registers = 32;
  out.counted.sectors = 2 * bytes / 32;
  out.counted.unique_bytes = out.counted.block_bytes = 2 * bytes;
  out.counted.unique_load_bytes = out.counted.block_load_bytes = bytes;
  out.counted.memory = 2 * bytes / 512;
  return out;
}

double counted_ns(const Operation& operation) { return operation_duration(operation, counted_card()).expected_ns; }

TEST(Counted, ACopyMovesItsBytesAtTheCardsRate) {
  const Operation copy = copy_of(1 << 30);
  const Duration duration = operation_duration(copy, counted_card());
  EXPECT_NEAR(duration.expected_ns, 2e9 * (1 << 30) / (counted_card().dram_bytes_per_s * counted_card().counted.dram_fraction),
              0.1 * duration.expected_ns);
  EXPECT_EQ(duration.bound, Bound::memory);
}

TEST(Counted, BytesThatABlockReadsAgainCostOnlyBeyondL2) {
  const auto read_twice = [](double row_bytes) {
    Operation out = copy_of(1 << 30);
    out.counted.blocks = (1 << 30) / row_bytes;
    out.counted.sectors *= 1.5;
    return counted_ns(out) / counted_ns(copy_of(1 << 30));
  };
  EXPECT_NEAR(read_twice(4096), 1, 0.05);
  EXPECT_NEAR(read_twice(1 << 20), 1.5, 0.1);
}

// Each block reads one column of a matrix of 16-bit numbers: 2 bytes of each sector.
TEST(Counted, SectorsThatNeighboursUseAreMovedOnce) {
  const auto column = [](double touched_share) {
    Operation out = copy_of(1 << 30);
    out.counted.blocks = 4096;
    out.counted.block_touched_bytes = 16 * out.counted.block_bytes;
    out.counted.touched_bytes = touched_share * out.counted.unique_bytes;
    out.counted.sectors = 2 * out.counted.block_touched_bytes / 32;  // each column is read twice
    return out.counted;
  };
  const auto ns = [&](const CountedWork& work) {
    Operation out = copy_of(1 << 30);
    out.counted = work;
    return counted_ns(out) / counted_ns(copy_of(1 << 30));
  };
  // All columns: the second time moves them once more. L2 answers 32 times as many bytes, which takes longer.
  const CardRates& card = counted_card();
  const double l2_ns = 1e9 * (32 * 2.0 * (1 << 30)) / card.counted.l2_shared_bytes_per_cycle / (card.multiprocessors * card.clock_hz);
  EXPECT_NEAR(ns(column(1)) * counted_ns(copy_of(1 << 30)), l2_ns, 0.1 * l2_ns);
  // Every sixteenth column of a larger matrix: whole sectors are moved, twice.
  EXPECT_NEAR(ns(column(16)), 32, 3);
}

// Each row of a table of 4 rows is read by its number, 64 times. Where the table is in L2, its rows are read once.
TEST(Counted, RowsThatAreReadByTheirNumbersAreInL2IfTheTableIs) {
  const auto gather = [](double table_bytes, double rows_of_blocks) {
    Operation out = copy_of(64 * table_bytes);
    out.counted.gathered_sectors = 64 * table_bytes / 32;
    out.counted.unique_load_bytes = table_bytes;
    out.counted.unique_bytes = 65 * table_bytes;
    out.counted.rows_of_blocks = rows_of_blocks;
    return counted_ns(out) / counted_ns(copy_of(64 * table_bytes));
  };
  EXPECT_NEAR(gather(4 << 20, 1), 0.5, 0.05);
  EXPECT_NEAR(gather(1 << 28, 1), 1, 0.05);
  EXPECT_NEAR(gather(1 << 28, 64), 0.5, 0.05);  // blocks of one row of the grid read a 64th of the table
}

// Blocks of 64 KiB and 1,024 threads of 64 registers each. As many bytes are spilled as copied, and moved twice.
TEST(Counted, SpilledRegistersCostWhatCachesDoNotHold) {
  const auto spilling = [](double block_bytes, double spilled_bytes) {
    Operation out = copy_of(1 << 30);
    out.counted.blocks = (1 << 30) / block_bytes;
    out.counted.block_threads = 1024;
    out.counted.registers = 64;
    out.counted.block_spilled_bytes = spilled_bytes;
    return counted_ns(out) / counted_ns(copy_of(1 << 30));
  };
  EXPECT_NEAR(spilling(32 << 10, 32 << 10), 1, 0.1);    // in L1: 96 KiB of 192
  EXPECT_NEAR(spilling(512 << 10, 512 << 10), 2, 0.1);  // in no cache: 108 blocks need 162 MiB
}

TEST(Counted, BlocksBeginOneAfterAnother) {
  Operation empty;
  empty.kind = OperationKind::compiled;
  empty.counted.blocks = 1 << 20;
  empty.counted.block_threads = 128;
  const double cycle_ns = 1e9 / counted_card().clock_hz;
  EXPECT_NEAR(counted_ns(empty), counted_card().counted.floor_ns + 1.19 * (1 << 20) * cycle_ns, 1e4);
}

// 65,536 blocks add to one place, or each to a line of its own.
TEST(Counted, AtomicsOnOnePlaceAreDoneOneAfterAnother) {
  const auto adds = [](double bytes) {
    Operation out;
    out.kind = OperationKind::compiled;
    out.counted.blocks = out.counted.atomic_passes = out.counted.atomic_sectors = 65536;
    out.counted.block_threads = 128;
    out.counted.atomic_bytes = bytes;
    return counted_ns(out);
  };
  const double cycle_ns = 1e9 / counted_card().clock_hz;
  EXPECT_NEAR(adds(4), counted_card().counted.floor_ns + 3.5 * 65536 * cycle_ns, 1e3);
  EXPECT_LT(adds(128 * 65536), 0.5 * adds(4));
}

// 108 multiprocessors at 1.41 GHz. 64 blocks request each byte, so that nearly all requests are for bytes that others request too. The same
// through a tensor map: where its tiles lie is not known.
TEST(Counted, RequestsForTheSameBytesAreAnsweredTogether) {
  Operation shared = copy_of(1 << 26);
  shared.counted.unique_bytes = shared.counted.block_bytes / 64;
  const double requested = shared.counted.block_bytes, cycle_ns = 1e9 / (108 * counted_card().clock_hz);
  const CountedConstants& c = counted_card().counted;
  const double alone = shared.counted.unique_bytes / c.l2_bytes_per_cycle;
  const double together = (requested - shared.counted.unique_bytes) / c.l2_shared_bytes_per_cycle;
  EXPECT_NEAR(counted_ns(shared), (alone + together) * cycle_ns + c.floor_ns, 0.1 * counted_ns(shared));
  Operation tiles = copy_of(1 << 20);
  tiles.counted.async_bytes = tiles.counted.tile_bytes = requested;
  EXPECT_NEAR(counted_ns(tiles), counted_ns(shared), 0.05 * counted_ns(shared));
}

TEST(Counted, MatrixInstructionsTakeTheirFlops) {
  Operation product = copy_of(1 << 20);
  product.counted.tensor_flops[static_cast<size_t>(Precision::bf16)] = 1e12;
  const Duration duration = operation_duration(product, counted_card());
  const double least_ns = 1e21 / counted_card().sustained_flop_per_s[Precision::bf16];
  EXPECT_GT(duration.expected_ns, least_ns);
  EXPECT_LT(duration.expected_ns, 2 * least_ns);
}

TEST(Counted, ALongChainInFewBlocksIsATail) {
  Operation walk = copy_of(1 << 20);
  walk.counted.blocks = 108;
  walk.counted.longest.cycles = walk.counted.mean.cycles = 500'000;
  const Duration duration = operation_duration(walk, counted_card());
  EXPECT_EQ(duration.bound, Bound::tail);
  EXPECT_GT(duration.expected_ns, 500e3 * 1e9 / counted_card().clock_hz);
}

TEST(Counted, SharedMemoryLimitsTheBlocksAtOnce) {
  Operation walk = copy_of(1 << 20);
  walk.counted.blocks = 10800;
  walk.counted.longest.cycles = walk.counted.mean.cycles = 5000;
  const double many = counted_ns(walk);
  walk.counted.shared_bytes = 160 << 10;  // one block a multiprocessor
  EXPECT_GT(counted_ns(walk), 5 * many);
}

}  // namespace
}  // namespace gpucast

#include "src/occupancy/occupancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "gpucast/gpu.h"
#include "src/occupancy/occupancy_card.h"

using namespace gpucast;

namespace {

OccupancyCard of_capability(int major, int minor, int multiprocessors = 1) {
  return card_of_capability(*find_capability_rules(major, minor), multiprocessors);
}

Occupancy of(const OccupancyCard& card, int registers, int shared_bytes, int threads, int64_t blocks) {
  return occupancy(card, {registers, shared_bytes, 0}, {blocks, threads, 0});
}

// Values that NVIDIA published.
struct Published {
  const char* source;
  int major, minor, registers, shared_bytes, threads;
  int blocks;
  double theoretical;
};

const Published kPublished[] = {
    {"CUDA C++ Best Practices Guide 12, 'Calculating Occupancy'", 7, 0, 37, 0, 128, 12, 0.75},
    {"the same", 7, 0, 37, 0, 320, 4, 0.625},
    {"the same: 32 registers a thread are the most for full occupancy", 7, 0, 32, 0, 1024, 2, 1.0},
    {"the same", 7, 0, 33, 0, 1024, 1, 0.5},
    {"Volta Tuning Guide: 64 warps, 32 blocks, 96 KB of shared memory of a multiprocessor", 7, 0, 16, 0, 64, 32, 1.0},
    {"the same: a block may use all 96 KB", 7, 0, 16, 96 << 10, 1024, 1, 0.5},
    {"Turing Tuning Guide: 32 warps, 16 blocks, 64 KB, which one block may use", 7, 5, 32, 0, 64, 16, 1.0},
    {"the same", 7, 5, 32, 64 << 10, 1024, 1, 1.0},
    {"NVIDIA Ampere GPU Architecture Tuning Guide: 64 warps, 32 blocks, 164 KB, 163 KB of them for a block", 8, 0, 32, 163 << 10, 1024, 1,
     0.5},
    {"the same: 1 KB of each block is reserved", 8, 0, 32, 81 << 10, 1024, 2, 1.0},
    {"the same", 8, 0, 32, (81 << 10) + 1, 1024, 1, 0.5},
    {"the same: 48 warps, 16 blocks, 100 KB, 99 KB for a block on 8.6", 8, 6, 32, 99 << 10, 768, 1, 0.5},
    {"the same", 8, 6, 32, 0, 32, 16, 16.0 / 48},
    {"NVIDIA Ada GPU Architecture Tuning Guide: 48 warps, 24 blocks, 100 KB, 99 KB for a block", 8, 9, 32, 0, 32, 24, 0.5},
    {"NVIDIA Hopper Tuning Guide: 64 warps, 32 blocks, 228 KB, 227 KB for a block", 9, 0, 32, 227 << 10, 1024, 1, 0.5},
    {"the same", 9, 0, 32, 0, 64, 32, 1.0},
    {"NVIDIA Blackwell Tuning Guide: 64 warps, 228 KB, 227 KB for a block on 10.0", 10, 0, 32, 227 << 10, 1024, 1, 0.5},
    {"the same: 48 warps on 12.0", 12, 0, 32, 0, 768, 2, 1.0},
};

TEST(Occupancy, EqualsNvidiasPublishedValues) {
  for (const Published& row : kPublished) {
    const Occupancy got = of(of_capability(row.major, row.minor), row.registers, row.shared_bytes, row.threads, 1 << 20);
    EXPECT_EQ(got.resident.blocks, row.blocks) << row.source;
    EXPECT_DOUBLE_EQ(got.theoretical, row.theoretical) << row.source;
  }
}

// The Programming Guide's rules, applied block by block: does one more fit?
int one_by_one(const CapabilityRules& rules, int registers, int shared_bytes, int threads) {
  const int warps = (threads + 31) / 32;
  if (registers > rules.most_thread_registers || shared_bytes > rules.most_block_bytes) return 0;
  int unit_registers = 0;  // of a warp
  while (unit_registers < registers * 32) unit_registers += 256;
  int shared = 0;
  while (shared < shared_bytes + rules.reserved_shared_bytes) shared += rules.shared_unit_bytes;
  // Each partition gets warps while it has registers for them.
  int slots = 0;
  for (int left = 65536 / rules.partitions; unit_registers > 0 && left >= unit_registers; left -= unit_registers) slots += rules.partitions;
  if (unit_registers == 0) slots = 1 << 20;
  // A block whose warps do not fill all partitions evenly is launched as if they did.
  int even = warps;
  while (even % rules.launch_partitions != 0) ++even;
  if (even * unit_registers > 65536) return 0;
  int blocks = 0, used_warps = 0, used_shared = 0;
  while (blocks < rules.most_blocks && used_warps + warps <= rules.most_warps && used_warps + warps <= slots &&
         used_shared + shared <= rules.most_shared_bytes) {
    ++blocks;
    used_warps += warps;
    used_shared += shared;
  }
  return blocks;
}

TEST(Occupancy, IsTheDocumentedRulesOnAnExhaustiveGrid) {
  int64_t cases = 0;
  for (const CapabilityRules& rules : capability_rules()) {
    const OccupancyCard card = card_of_capability(rules, 1);
    for (int registers = 0; registers <= 257; ++registers) {
      for (int threads = 1; threads <= 1024; threads += threads % 64 == 0                  ? 1
                                                        : threads % 64 == 1 && threads > 1 ? 31
                                                                                           : 63 - (threads + 63) % 64) {
        for (const int shared : {0, 1, 1024, 5000, 12'287, 33 << 10, 48 << 10, (48 << 10) + 1, 99 << 10, 163 << 10, 228 << 10}) {
          ++cases;
          ASSERT_EQ(blocks_per_multiprocessor(card, {registers, shared, 0}, threads, 0).blocks,
                    one_by_one(rules, registers, shared, threads))
              << rules.major << "." << rules.minor << ": " << registers << " registers, " << shared << " bytes, " << threads << " threads";
        }
      }
    }
  }
  EXPECT_GT(cases, 1'000'000);
}

TEST(Occupancy, StaticAndDynamicSharedMemoryAreOne) {
  const OccupancyCard card = of_capability(8, 0);
  for (const int shared : {0, 100, 20'000, 163 << 10, 164 << 10}) {
    const auto whole = blocks_per_multiprocessor(card, {32, shared, 0}, 128, 0),
               parts = blocks_per_multiprocessor(card, {32, shared / 2, 0}, 128, shared - shared / 2);
    EXPECT_EQ(whole.blocks, parts.blocks) << shared;
  }
}

TEST(Occupancy, AnImpossibleLaunchHasNone) {
  const OccupancyCard card = of_capability(9, 0, 132);
  for (const int threads : {0, -1, 1025, INT32_MAX}) EXPECT_EQ(of(card, 32, 0, threads, 1000).achieved, 0) << threads;
  EXPECT_EQ(of(card, 257, 0, 32, 1000).theoretical, 0);
  EXPECT_EQ(of(card, 32, 0, 32, 0).achieved, 0);
  EXPECT_EQ(occupancy(card, {32, 0, 0}, {1, 32, int64_t{1} << 40}).theoretical, 0);
  EXPECT_EQ(occupancy(card, {32, 0, 0}, {1, 32, -5}).theoretical, 0);
}

TEST(Occupancy, SaysWhatLimits) {
  const OccupancyCard card = of_capability(8, 0);
  EXPECT_EQ(of(card, 128, 0, 256, 1).resident.limit, OccupancyLimit::registers);
  EXPECT_EQ(of(card, 32, 100 << 10, 256, 1).resident.limit, OccupancyLimit::shared_memory);
  EXPECT_EQ(of(card, 16, 0, 32, 1).resident.limit, OccupancyLimit::blocks);
  EXPECT_EQ(of(card, 32, 0, 1024, 1).resident.limit, OccupancyLimit::warps);
  const auto both = of(card, 64, 0, 1024, 1).resident;  // registers for 2 warps: they allow one block
  EXPECT_EQ(both.blocks, 1);
  EXPECT_TRUE(both.limited_by(OccupancyLimit::registers));
  EXPECT_FALSE(both.limited_by(OccupancyLimit::warps));
}

TEST(Occupancy, CountsWavesAndTheirTail) {
  const OccupancyCard card = of_capability(8, 0, 100);
  const Occupancy whole = of(card, 32, 0, 256, 1600);  // 8 blocks on each of 100
  EXPECT_EQ(whole.waves, 2);
  EXPECT_DOUBLE_EQ(whole.tail, 1);
  EXPECT_DOUBLE_EQ(whole.achieved, 1);
  EXPECT_DOUBLE_EQ(whole.sm_active, 1);
  const Occupancy partial = of(card, 32, 0, 256, 850);
  EXPECT_EQ(partial.waves, 2);
  EXPECT_DOUBLE_EQ(partial.tail, 50.0 / 800);
  EXPECT_DOUBLE_EQ(partial.achieved, (1 + 50.0 / 800) / 2);
  EXPECT_DOUBLE_EQ(partial.sm_active, (1 + 0.5) / 2);
  const Occupancy few = of(card, 32, 0, 256, 25);
  EXPECT_EQ(few.waves, 1);
  EXPECT_DOUBLE_EQ(few.achieved, 25.0 * 8 / (100 * 64));
  EXPECT_DOUBLE_EQ(few.sm_active, 0.25);
}

TEST(Occupancy, AchievedNeverExceedsTheoretical) {
  const OccupancyCard card = of_capability(8, 6, 28);
  for (int64_t blocks = 1; blocks < 2000; ++blocks) {
    const Occupancy got = of(card, 40, 3000, 192, blocks);
    ASSERT_LE(got.achieved, got.theoretical + 1e-12);
    ASSERT_GT(got.achieved, 0);
    ASSERT_LE(got.sm_active, 1);
    ASSERT_LE(got.achieved, got.sm_active + 1e-12);
  }
}

// Rows from traces of PyTorch's profiler: V100-DGXS (80 multiprocessors; Kineto's TensorBoard samples, 2021), H100 (132; TraceLens).
TEST(KinetoOccupancy, EqualsTheProfilersFigures) {
  const OccupancyCard v100 = of_capability(7, 0, 80), h100 = of_capability(9, 0, 132);
  struct Row {
    const OccupancyCard* card;
    int registers, shared_bytes, threads;
    int64_t blocks;
    int percent;
    bool refused;
  };
  for (const Row& row : {Row{&v100, 20, 0, 64, 576, 22, false}, Row{&v100, 126, 8192, 64, 576, 22, false},
                         Row{&h100, 168, 231424, 384, 120, 0, true}, Row{&h100, 100, 98304, 128, 96, 0, true}}) {
    const KinetoOccupancy got = kineto_occupancy(*row.card, {row.registers, row.shared_bytes, 0}, {row.blocks, row.threads, 0});
    EXPECT_EQ(got.percent, row.percent) << row.registers;
    EXPECT_EQ(got.refused_shared_memory, row.refused) << row.registers;
  }
  EXPECT_FLOAT_EQ(kineto_occupancy(v100, {20, 0, 0}, {576, 64, 0}).blocks_per_sm, 7.2f);
  EXPECT_FLOAT_EQ(kineto_occupancy(v100, {20, 0, 0}, {576, 64, 0}).warps_per_sm, 14.4f);
}

TEST(OccupancyRemedy, LiftsTheLimit) {
  using What = OccupancyRemedy::What;
  const OccupancyCard card = of_capability(8, 0, 108);
  const int64_t many = 1 << 20;
  const OccupancyRemedy registers = occupancy_remedy(card, {128, 0, 0}, {many, 256, 0});  // 2 blocks; 80 registers allow a third
  EXPECT_EQ(registers.what, What::fewer_registers);
  EXPECT_EQ(registers.goal, 80);
  EXPECT_NEAR(registers.achieved, 3.0 * 8 / 64, 0.01);
  const OccupancyRemedy shared = occupancy_remedy(card, {32, 100 << 10, 0}, {many, 256, 0});
  EXPECT_EQ(shared.what, What::less_shared_memory);
  EXPECT_EQ(shared.goal, 81 << 10);
  const OccupancyRemedy block = occupancy_remedy(card, {16, 0, 0}, {many, 32, 0});
  EXPECT_EQ(block.what, What::other_block);
  EXPECT_GT(block.goal, 32);
  EXPECT_NEAR(block.achieved, 1, 0.01);
  const OccupancyRemedy grid = occupancy_remedy(card, {32, 0, 0}, {10, 256, 0});
  EXPECT_EQ(grid.what, What::more_blocks);
  EXPECT_EQ(grid.goal, 8 * 108);
  EXPECT_DOUBLE_EQ(grid.achieved, 1);
  EXPECT_EQ(occupancy_remedy(card, {32, 0, 0}, {8 * 108, 256, 0}).what, What::none);
}

TEST(CapabilityRules, AreThoseOfTheDeviceTable) {
  for (const Gpu& gpu : gpu_table()) {
    const CapabilityRules* rules = find_capability_rules(gpu.compute_major, gpu.compute_minor);
    ASSERT_NE(rules, nullptr) << gpu.id;
    const OccupancyCard from_table = occupancy_card(gpu), from_rules = card_of_capability(*rules, gpu.multiprocessors);
    EXPECT_EQ(from_table.most_threads, from_rules.most_threads) << gpu.id;
    EXPECT_EQ(from_table.most_blocks, from_rules.most_blocks) << gpu.id;
    EXPECT_EQ(from_table.registers, from_rules.registers) << gpu.id;
    EXPECT_EQ(from_table.shared_bytes, from_rules.shared_bytes) << gpu.id;
    EXPECT_EQ(from_table.block_shared_bytes, from_rules.block_shared_bytes) << gpu.id;
  }
  EXPECT_EQ(find_capability_rules(5, 2), nullptr);
  EXPECT_EQ(find_capability_rules(13, 0), nullptr);
}

}  // namespace

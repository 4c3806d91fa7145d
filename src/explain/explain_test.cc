#include "src/explain/explain.h"

#include <gtest/gtest.h>

#include <numeric>

#include "src/attribution/test_program.h"
#include "src/explain/free_memory.h"

namespace gpucast {
namespace {

Analysis explained(const std::string& name) {
  const std::string folder = std::string(GPUCAST_SOURCE_DIR) + "/tests/cases/" + name;
  return judge(follow(read_trace(folder + (name.starts_with("snapshot") ? "/input.pickle" : "/input.jsonl"))), "rtx3060");
}

TEST(FreeMemory, BlocksAndFreePiecesTileEverySegment) {
  for (const char* name : {"real_mlp_torch26", "real_mlp_torch214", "expandable_segments", "snapshot_whole", "snapshot_ring_buffer",
                           "snapshot_expandable", "out_of_memory"}) {
    const Analysis analysis = explained(name);
    const auto end = static_cast<uint32_t>(analysis.facts->trace.events.size());
    for (uint32_t position = 0; position <= end; position += 1 + end / 50) {
      int64_t reserved = 0, free = 0, used = 0;
      for (const SegmentFilling& segment : segments_at(analysis, position)) {
        reserved += segment.bytes;
        for (const FreePiece& piece : segment.free) free += piece.bytes;
        for (const uint32_t block : segment.blocks) used += analysis.facts->lifetimes.blocks[block].size_bytes;
      }
      EXPECT_EQ(reserved, analysis.facts->lifetimes.reserved_at(position)) << name << " at " << position;
      EXPECT_EQ(used, analysis.facts->lifetimes.allocated_at(position)) << name << " at " << position;
      EXPECT_EQ(used + free, reserved) << name << " at " << position;
    }
  }
}

TEST(FreeMemory, IsLookedAtWhenItIsFullest) {
  const Analysis analysis = explained("real_mlp_torch26");
  const Lifetimes& lifetimes = analysis.facts->lifetimes;
  const uint32_t fullest = fullest_position(analysis);
  ASSERT_EQ(lifetimes.reserved_at(fullest), lifetimes.peak_reserved.bytes);
  for (uint32_t position = 0; position <= lifetimes.allocated.size(); ++position) {
    if (lifetimes.reserved_at(position) == lifetimes.peak_reserved.bytes) {
      EXPECT_LE(lifetimes.allocated_at(position), lifetimes.allocated_at(fullest)) << position;
    }
  }
}

TEST(Explain, AddsUp) {
  for (const char* name : {"real_mlp_torch26", "snapshot_whole"}) {
    const Analysis analysis = explained(name);
    const Explanation e = explain(analysis);
    const auto sum = [](int64_t total, const CategoryLine& line) { return total + line.bytes; };
    EXPECT_EQ(std::accumulate(e.categories.begin(), e.categories.end(), int64_t{0}, sum), analysis.prediction.peak_allocated.bytes) << name;
    int64_t operators = 0;
    for (const OperatorShare& share : e.operators) operators += share.bytes;
    EXPECT_EQ(operators, e.categories.front().bytes) << name;
    EXPECT_EQ(e.free.free_bytes(), e.free.reserved_bytes - e.free.allocated_bytes) << name;
    ASSERT_LE(e.blocks.size(), 10U);
    EXPECT_TRUE(std::is_sorted(e.blocks.begin(), e.blocks.end(), [](const auto& a, const auto& b) { return a.size_bytes > b.size_bytes; }));
    int64_t largest = 0;
    for (const Block& block : analysis.facts->lifetimes.blocks) {
      if (block.alive_at(analysis.facts->lifetimes.peak_allocated.position())) largest = std::max(largest, block.size_bytes);
    }
    EXPECT_EQ(e.blocks.front().size_bytes, largest) << name;
  }
}

TEST(Explain, WhatSettingsSaveIsWhatTheReplaySays) {
  const Analysis analysis = explained("snapshot_whole");
  const Explanation e = explain(analysis);
  ASSERT_FALSE(e.remedies.empty());
  EXPECT_EQ(e.remedies.front().name, "expandable_segments:True");
  for (const Remedy& remedy : e.remedies) {
    EXPECT_TRUE(remedy.computed);
    EXPECT_EQ(remedy.saved_reserved_bytes, analysis.prediction.peak_reserved.bytes - remedy.peak_reserved_bytes);
  }
  EXPECT_TRUE(what_ifs_to_try(analysis).empty()) << "a snapshot cannot be run again";
}

// ---- which what-ifs can matter -----------------------------------------------------------------------------------------------

Analysis explained(Program program) {
  program.trace.header.source = "vgpu";
  program.trace.header.gpu.id = "rtx3060";
  program.trace.header.command = {"python", "train.py"};
  return judge(follow(std::move(program.trace)), std::nullopt);
}

bool tries(const Analysis& analysis, const std::string& name) {
  const std::vector<std::string> names = what_ifs_to_try(analysis);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Two steps. zero_grad frees the gradients or zeroes them in place; the optimizer has temporaries or not.
Program two_steps(bool set_to_none, bool temporaries) {
  Program p;
  p.alloc("weight", 4 * kMiB);
  p.tensor(TensorKind::parameter, "weight", 2);
  for (int step = 1; step <= 2; ++step) {
    p.begin(MarkedPhase::zero_grad);
    if (step == 2 && set_to_none) p.free("grad");
    p.end(MarkedPhase::zero_grad);
    p.begin(MarkedPhase::forward);
    p.alloc("hidden", 6 * kMiB);
    p.end(MarkedPhase::forward);
    p.begin(MarkedPhase::backward);
    if (step == 1 || set_to_none) p.alloc("grad", 4 * kMiB);
    p.free("hidden");
    p.end(MarkedPhase::backward);
    p.tensor(TensorKind::gradient, "grad", 2);
    p.begin(MarkedPhase::optimizer_step);
    if (temporaries) {
      p.alloc("update", 4 * kMiB);
      p.free("update");
    }
    p.mark(MarkKind::step, MarkedPhase::unknown, step);
    p.end(MarkedPhase::optimizer_step);
  }
  return p;
}

TEST(WhatIfsToTry, LeaveOutWhatCannotMatter) {
  EXPECT_FALSE(tries(explained(two_steps(true, false)), "set-to-none"));
  EXPECT_TRUE(tries(explained(two_steps(false, false)), "set-to-none"));
  EXPECT_FALSE(tries(explained(two_steps(true, false)), "no-foreach"));
  EXPECT_TRUE(tries(explained(two_steps(true, true)), "no-foreach"));
  EXPECT_TRUE(tries(explained(two_steps(true, false)), "half-batch"));
  EXPECT_TRUE(tries(explained(two_steps(true, false)), "bf16"));
}

TEST(WhatIfsToTry, LeaveOutWhatIsInPlace) {
  Program program = two_steps(true, false);
  program.trace.header.what_if = {{"bf16", "", true}};
  EXPECT_FALSE(tries(explained(std::move(program)), "bf16"));
}

// 0: GPT { 1, 2: Block { 3, 4: SelfAttention { 5, 6: Linear } } }. Inner modules keep activations; a Block only if `blocks_keep`.
Program nested_modules(bool blocks_keep) {
  Program p;
  const auto module = [&](int64_t id, int64_t parent, const char* name, const char* type) {
    if (p.trace.modules.size() <= static_cast<size_t>(id)) p.trace.modules.resize(static_cast<size_t>(id) + 1);
    p.trace.modules[static_cast<size_t>(id)] = {ModuleId(parent), p.trace.strings.intern(name), p.trace.strings.intern(type)};
  };
  module(0, -1, "", "GPT");
  for (int64_t layer = 0; layer < 2; ++layer) {
    module(1 + layer, 0, layer == 0 ? "blocks.0" : "blocks.1", "Block");
    module(3 + layer, 1 + layer, layer == 0 ? "blocks.0.attention" : "blocks.1.attention", "SelfAttention");
    module(5 + layer, 3 + layer, layer == 0 ? "blocks.0.attention.out" : "blocks.1.attention.out", "Linear");
  }
  p.begin(MarkedPhase::forward);
  const auto enter = [&](int64_t id) { p.mark(MarkKind::module_begin, MarkedPhase::unknown, id); };
  const auto leave = [&](int64_t id) { p.mark(MarkKind::module_end, MarkedPhase::unknown, id); };
  enter(0);
  for (int64_t layer = 0; layer < 2; ++layer) {
    const std::string number = std::to_string(layer);
    enter(1 + layer);
    if (blocks_keep) p.alloc("residual" + number, kMiB);
    enter(3 + layer);
    p.alloc("scores" + number, 8 * kMiB);
    enter(5 + layer);
    p.alloc("out" + number, 2 * kMiB);
    leave(5 + layer);
    leave(3 + layer);
    leave(1 + layer);
  }
  leave(0);
  p.end(MarkedPhase::forward);
  p.begin(MarkedPhase::backward);
  for (const char* name : {"out1", "scores1", "out0", "scores0"}) p.free(name);
  p.end(MarkedPhase::backward);
  p.mark(MarkKind::step, MarkedPhase::unknown, 1);
  return p;
}

TEST(ClassToCheckpoint, IsTheRepeatedOneThatHoldsMost) {
  const Analysis analysis = explained(nested_modules(true));
  EXPECT_EQ(class_to_checkpoint(analysis), "Block");  // not the model, which exists once; not Linear, which has no modules inside
  EXPECT_TRUE(tries(analysis, "checkpoint:Block"));
  const Explanation e = explain(analysis);
  ASSERT_FALSE(e.blocks.empty());
  EXPECT_EQ(e.blocks.front().module, "blocks.*.attention (SelfAttention)");
  EXPECT_EQ(e.blocks.front().count, 2);
  ASSERT_FALSE(e.operators.empty());
}

TEST(ClassToCheckpoint, IsTheInnerOneOfEquals) {
  const Analysis analysis = explained(nested_modules(false));
  EXPECT_EQ(class_to_checkpoint(analysis), "SelfAttention");
}

TEST(ClassToCheckpoint, IsNoneWithoutRepeatedModules) { EXPECT_EQ(class_to_checkpoint(explained(two_steps(true, false))), ""); }

}  // namespace
}  // namespace gpucast

#include "gpucast/breakdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "src/attribution/attribute.h"
#include "src/attribution/test_program.h"
#include "src/predict/analysis.h"

namespace gpucast {
namespace {

Analysis breakdown_analysis(const Program& program) {
  const auto facts = std::make_shared<Facts>();
  facts->trace.events = program.trace.events;
  facts->trace.marks = program.trace.marks;
  facts->trace.tensors = program.trace.tensors;
  facts->trace.modules = program.trace.modules;
  facts->trace.vgpu_events = program.trace.vgpu_events;
  facts->trace.end = program.trace.end;
  for (size_t i = 0; i < program.trace.strings.size(); ++i) {
    facts->trace.strings.intern(program.trace.strings.text(StringId(static_cast<int64_t>(i))));
  }
  facts->lifetimes = follow_blocks(facts->trace.events, AllocConf(), &facts->trace.problems);
  facts->attribution = attribute(facts->trace, facts->lifetimes, &facts->trace.problems);
  Analysis out;
  out.facts = facts;
  return out;
}

constexpr auto kPeak = static_cast<size_t>(Instant::peak), kForwardEnd = static_cast<size_t>(Instant::forward_end),
               kEnd = static_cast<size_t>(Instant::end), kMaximum = static_cast<size_t>(Instant::maximum);

const BreakdownRow& row(const Breakdown& b, Grouping by, const std::string& name, bool itself = false) {
  const auto& rows = b.by(by);
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const BreakdownRow& r) { return r.name == name && r.itself == itself; });
  if (found == rows.end()) throw std::out_of_range("no row " + name);
  return *found;
}

int64_t bytes(const BreakdownRow& r, size_t moment, Category category) {
  return r.moments[moment].categories[static_cast<size_t>(category)].allocated_bytes;
}

// Modules 0 (root), 1 below it, 2 and 3 below 1.
Program with_tree() {
  Program p = training_step();
  p.trace.modules[1].parent = ModuleId(0);
  p.trace.modules[1].name = p.trace.strings.intern("body");
  p.trace.modules[2].parent = ModuleId(1);
  p.trace.modules[2].name = p.trace.strings.intern("body.fc1");
  p.trace.modules[3].parent = ModuleId(1);
  p.trace.modules[3].name = p.trace.strings.intern("body.fc2");
  return p;
}

TEST(Breakdown, OfATrainingStep) {
  const Breakdown b = breakdown(breakdown_analysis(with_tree()));
  const BreakdownRow& fc1 = row(b, Grouping::module, "body.fc1");
  EXPECT_EQ(fc1.depth, 2);
  EXPECT_EQ(bytes(fc1, kForwardEnd, Category::activations), 6 * kMiB);
  EXPECT_EQ(bytes(fc1, kForwardEnd, Category::parameters), 4 * kMiB);
  EXPECT_EQ(bytes(fc1, kForwardEnd, Category::gradients), 0);
  EXPECT_EQ(bytes(fc1, kMaximum, Category::gradients), 4 * kMiB);
  EXPECT_EQ(bytes(row(b, Grouping::module, "body.fc2"), kForwardEnd, Category::temporaries), 0);
  EXPECT_EQ(bytes(row(b, Grouping::module, "body.fc2"), kMaximum, Category::temporaries), 2 * kMiB);
  EXPECT_EQ(bytes(row(b, Grouping::module, "body.fc2"), kMaximum, Category::intermediate_gradients), 6 * kMiB);
  EXPECT_EQ(bytes(row(b, Grouping::module, "body"), kForwardEnd, Category::activations), 6 * kMiB);
  EXPECT_EQ(bytes(row(b, Grouping::tensor, "weight"), kEnd, Category::parameters), 4 * kMiB);
  EXPECT_EQ(bytes(row(b, Grouping::phase, "model_to_device"), kEnd, Category::parameters), 4 * kMiB);
  EXPECT_EQ(b.moments[kForwardEnd].place.phase, "forward");
}

TEST(Breakdown, AModuleAboveItselfEndsNoProgram) {
  Program p = with_tree();
  p.trace.modules[0].parent = ModuleId(3);
  p.trace.modules[2].parent = ModuleId(2);
  const Breakdown b = breakdown(breakdown_analysis(p));
  EXPECT_EQ(b.moments[kPeak].figures.total.allocated_bytes, b.moments[kPeak].allocated_bytes);
}

TEST(Breakdown, OfNothing) {
  Analysis nothing;
  nothing.facts = std::make_shared<const Facts>();
  const Breakdown b = breakdown(nothing);
  for (const BreakdownMoment& moment : b.moments) EXPECT_FALSE(moment.known);
  for (const auto& rows : b.rows) EXPECT_TRUE(rows.empty());
}

// Every grouping adds up to the allocated bytes at every moment, children add up to their parents, and the highest values equal the maxima
// over all single moments.
TEST(Breakdown, AddsUpForRandomPrograms) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Program p = random_program(seed);
    p.trace.modules[1].parent = ModuleId(0);
    p.trace.modules[2].parent = ModuleId(1);
    p.trace.modules[3].parent = ModuleId(static_cast<int64_t>(seed % 3));
    const Analysis analysis = breakdown_analysis(p);
    const Breakdown b = breakdown(analysis);
    for (size_t grouping = 0; grouping < b.rows.size(); ++grouping) {
      const auto& rows = b.rows[grouping];
      for (const size_t moment : {kPeak, kForwardEnd, kEnd}) {
        if (!b.moments[moment].known) continue;
        int64_t sum = 0;
        std::map<int32_t, int64_t> of_children;
        for (const BreakdownRow& r : rows) {
          const int64_t total = r.moments[moment].total.allocated_bytes;
          int64_t categories = 0;
          for (const BreakdownFigure& figure : r.moments[moment].categories) categories += figure.allocated_bytes;
          ASSERT_EQ(categories, total);
          if (r.parent < 0) sum += total;
          of_children[r.parent] += total;
        }
        ASSERT_EQ(sum, b.moments[moment].allocated_bytes) << grouping_name(static_cast<Grouping>(grouping)) << " seed " << seed;
        for (const auto& [parent, total] : of_children) {
          if (parent >= 0) {
            ASSERT_EQ(total, rows[static_cast<size_t>(parent)].moments[moment].total.allocated_bytes);
          }
        }
      }
    }
    for (size_t c = 0; c < kCategories; ++c) {
      int64_t highest = 0;
      for (uint32_t event = 0; event < analysis.facts->lifetimes.allocated.size(); ++event) {
        highest = std::max(highest, categories_after(analysis.facts->lifetimes, analysis.facts->attribution, event)[c]);
      }
      ASSERT_EQ(b.moments[kMaximum].figures.categories[c].allocated_bytes, highest) << "seed " << seed;
    }
    ASSERT_EQ(b.moments[kMaximum].figures.total.allocated_bytes, analysis.facts->lifetimes.peak_allocated.bytes);
  }
}

}  // namespace
}  // namespace gpucast

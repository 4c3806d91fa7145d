#include "gpucast/diff.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpucast {
namespace {

constexpr size_t kAnyCategory = 3;  // any of the categories

struct Tree {
  DiffInput input;
  Grouping by = Grouping::module;

  Tree() {
    Breakdown& b = input.breakdown;
    for (size_t i = 0; i < kCategories; ++i) b.categories.push_back("category" + std::to_string(i));
    b.moments[0].known = true;
  }

  // Adds `bytes` to a row and all rows above it, as in a breakdown. Returns the row's index.
  int32_t row(const std::string& name, int32_t parent, int64_t bytes, size_t category = kAnyCategory, bool itself = false) {
    std::vector<BreakdownRow>& rows = input.breakdown.rows[static_cast<size_t>(by)];
    BreakdownRow row;
    row.name = name;
    row.parent = parent;
    row.itself = itself;
    rows.push_back(row);
    const auto index = static_cast<int32_t>(rows.size()) - 1;
    for (int32_t at = index; at >= 0; at = rows[static_cast<size_t>(at)].parent)
      add(&rows[static_cast<size_t>(at)].moments[0], category, bytes);
    BreakdownMoment& peak = input.breakdown.moments[0];
    add(&peak.figures, category, bytes);
    peak.allocated_bytes += bytes;
    return index;
  }

  static void add(BreakdownFigures* figures, size_t category, int64_t bytes) {
    figures->categories[category].allocated_bytes += bytes;
    figures->total.allocated_bytes += bytes;
  }
};

const DiffRow* find(const Diff& diff, const std::string& name) {
  const auto found = std::find_if(diff.rows.begin(), diff.rows.end(), [&](const DiffRow& row) { return row.name == name; });
  return found == diff.rows.end() ? nullptr : &*found;
}

void expect_adds_up(const Diff& diff) {
  DiffBytes rows, categories;
  for (const DiffRow& row : diff.rows) {
    rows.before_bytes += row.total.before_bytes;
    rows.after_bytes += row.total.after_bytes;
    DiffBytes of_row;
    for (const DiffBytes& bytes : row.categories) {
      of_row.before_bytes += bytes.before_bytes;
      of_row.after_bytes += bytes.after_bytes;
    }
    EXPECT_EQ(of_row.before_bytes, row.total.before_bytes) << row.name;
    EXPECT_EQ(of_row.after_bytes, row.total.after_bytes) << row.name;
  }
  for (const DiffCategory& category : diff.categories) {
    categories.before_bytes += category.bytes.before_bytes;
    categories.after_bytes += category.bytes.after_bytes;
  }
  EXPECT_EQ(rows.before_bytes, diff.peak_allocated.before_bytes);
  EXPECT_EQ(rows.after_bytes, diff.peak_allocated.after_bytes);
  EXPECT_EQ(categories.before_bytes, diff.peak_allocated.before_bytes);
  EXPECT_EQ(categories.after_bytes, diff.peak_allocated.after_bytes);
}

TEST(Diff, ModulesCountTheirOwnBytesOnly) {
  Tree before, after;
  for (Tree* tree : {&before, &after}) {
    const int32_t root = tree->row("", -1, 0);
    tree->row("", root, 100, 0, true);  // the root's own
    const int32_t layer = tree->row("layer", root, 0);
    tree->row("layer.fc", layer, tree == &before ? 10 : 25);
  }
  const Diff result = diff(before.input, after.input, Grouping::module);
  expect_adds_up(result);
  ASSERT_EQ(result.rows.size(), 2u) << "layer has no bytes of its own";
  EXPECT_EQ(result.rows[0].name, "layer.fc") << "the largest change first";
  EXPECT_EQ(result.rows[0].total.change_bytes(), 15);
  EXPECT_EQ(result.rows[0].presence, DiffPresence::both);
  EXPECT_EQ(result.rows[0].categories[kAnyCategory].after_bytes, 25);
  EXPECT_EQ(find(result, "")->total.before_bytes, 100);
  EXPECT_EQ(find(result, "")->total.change_bytes(), 0);
}

TEST(Diff, NewAndGoneModulesAreOneRowEach) {
  Tree before, after;
  const int32_t old_root = before.row("", -1, 0), new_root = after.row("", -1, 0);
  const int32_t gone = before.row("old", old_root, 0);
  before.row("old.a", gone, 7);
  before.row("old.b", gone, 8);
  before.row("same", old_root, 1);
  after.row("same", new_root, 1);
  const int32_t added = after.row("h", new_root, 0);
  const int32_t below = after.row("h.0", added, 0);
  after.row("h.0", below, 2, 0, true);
  after.row("h.0.fc", below, 30);
  const Diff result = diff(before.input, after.input, Grouping::module);
  expect_adds_up(result);
  ASSERT_EQ(result.rows.size(), 3u);
  EXPECT_EQ(result.rows[0].name, "h");
  EXPECT_EQ(result.rows[0].presence, DiffPresence::added);
  EXPECT_EQ(result.rows[0].modules_below, 2);
  EXPECT_EQ(result.rows[0].total.after_bytes, 32);
  EXPECT_EQ(result.rows[1].name, "old");
  EXPECT_EQ(result.rows[1].presence, DiffPresence::gone);
  EXPECT_EQ(result.rows[1].total.before_bytes, 15);
}

TEST(Diff, ALeafThatGetsChildrenKeepsItsOwnBytes) {
  Tree before, after;
  before.row("head", -1, 40);
  const int32_t head = after.row("head", -1, 0);
  after.row("head", head, 30, kAnyCategory, true);
  after.row("head.norm", head, 5);
  const Diff result = diff(before.input, after.input, Grouping::module);
  expect_adds_up(result);
  EXPECT_EQ(find(result, "head")->total.change_bytes(), -10);
  EXPECT_EQ(find(result, "head.norm")->presence, DiffPresence::added);
}

TEST(Diff, SeveralRowsOfOneNameMatchInOrder) {
  Tree before, after;
  before.row("", -1, 5);
  before.row("", -1, 6);
  after.row("", -1, 5);
  after.row("", -1, 9);
  after.row("", -1, 1);
  const Diff result = diff(before.input, after.input, Grouping::module);
  expect_adds_up(result);
  ASSERT_EQ(result.rows.size(), 3u);
  EXPECT_EQ(result.rows[0].total.change_bytes(), 3);
  EXPECT_EQ(result.rows[1].presence, DiffPresence::added);
}

TEST(Diff, OtherGroupingsMatchByName) {
  Tree before, after;
  before.by = after.by = Grouping::op;
  before.row("aten::addmm", -1, 100);
  after.row("aten::addmm", -1, 60);
  after.row("aten::relu", -1, 10);
  const Diff result = diff(before.input, after.input, Grouping::op);
  expect_adds_up(result);
  EXPECT_EQ(result.by, Grouping::op);
  EXPECT_EQ(result.rows[0].total.change_bytes(), -40) << "the largest change, whatever its sign";
  EXPECT_EQ(find(result, "aten::relu")->presence, DiffPresence::added);
}

TEST(Diff, PeaksAndWhatMakesRunsHardToCompare) {
  Tree before, after;
  before.input.breakdown.peak_reserved_bytes = 1000;
  after.input.breakdown.peak_reserved_bytes = 1500;
  before.input.breakdown.device.expected_bytes = 2000;
  after.input.breakdown.device.expected_bytes = 2600;
  Prediction &a = before.input.prediction, &b = after.input.prediction;
  a.source = b.source = "vgpu";
  a.gpu_id = b.gpu_id = a.captured_gpu_id = b.captured_gpu_id = "l4";
  EXPECT_TRUE(diff(before.input, after.input, Grouping::module).notes.empty());
  EXPECT_EQ(diff(before.input, after.input, Grouping::module).peak_reserved.change_bytes(), 500);
  EXPECT_EQ(diff(before.input, after.input, Grouping::module).device.change_bytes(), 600);
  const auto note = [&](const std::string& part) {
    const std::vector<std::string> notes = diff(before.input, after.input, Grouping::module).notes;
    return std::count_if(notes.begin(), notes.end(), [&](const std::string& text) { return text.find(part) != std::string::npos; });
  };
  b.gpu_id = "h100";
  EXPECT_EQ(note("l4 before, h100 after"), 1);
  b.gpu_id = "l4";
  b.captured_gpu_id = "h100";
  EXPECT_EQ(note("Recorded for different cards, l4 before and h100 after"), 1);
  a.torch = "2.6.0";
  b.torch = "2.14.1";
  EXPECT_EQ(note("PyTorch differs: 2.6.0 before, 2.14.1 after"), 1);
  b.steps = 3;
  EXPECT_EQ(note("0 and 3 optimizer steps"), 1);
  b.oom = OomPlace{};
  b.oom->ended_run = true;
  EXPECT_EQ(note("The run after ended out of memory"), 1);
  a.end_reason = "timeout";
  EXPECT_EQ(note("The run before did not come to its end (timeout)"), 1);
  b.source = "cpu_profile";
  EXPECT_EQ(note("Before is a run on the virtual GPU, after a profiler trace"), 1);
  b.source = "snapshot";
  EXPECT_EQ(note("The snapshot after has no phases"), 1);
  EXPECT_EQ(note("optimizer steps"), 0) << "a snapshot does not contain them";
}

}  // namespace
}  // namespace gpucast

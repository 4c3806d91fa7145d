#include "src/check/figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/check/test_check.h"

namespace gpucast::check {
namespace {

// What a check compares: the figures of `before`, as a baseline keeps them, and `now`.
Diff growth_of(const std::vector<TestRow>& before, const std::vector<TestRow>& now) {
  Breakdown folded = test_breakdown(before);
  fold_small_modules({}, &folded);
  const CardFigures baseline = figures_of(Analysis(), folded, std::nullopt);
  std::set<std::string> kept;
  for (const ModuleBytes& module : baseline.modules) kept.insert(module.name);
  Breakdown after = test_breakdown(now);
  fold_small_modules(kept, &after);
  const DiffInput earlier = as_diff_input(baseline, "l4", after);
  Diff out = diff(earlier, {"now", {}, std::move(after)}, Grouping::module);
  int64_t change = 0;
  for (const DiffRow& row : out.rows) change += row.total.change_bytes();
  EXPECT_EQ(change, out.peak_allocated.change_bytes()) << "rows add up";
  return out;
}

const DiffRow* growth_row(const Diff& growth, const std::string& name) {
  const auto found = std::find_if(growth.rows.begin(), growth.rows.end(), [&](const DiffRow& row) { return row.name == name; });
  return found == growth.rows.end() ? nullptr : &*found;
}

const std::vector<TestRow>& two_blocks() {
  static const std::vector<TestRow> rows = {{"", "Net", -1, 0, 0},           {"h", "ModuleList", 0, 0, 0},  {"h.0", "Block", 1, 0, 100},
                                            {"h.0.fc", "Linear", 2, 400, 0}, {"h.0.act", "ReLU", 2, 0, 0},  {"h.1", "Block", 1, 0, 100},
                                            {"h.1.fc", "Linear", 5, 400, 0}, {"norm", "LayerNorm", 0, 0, 0}};
  return rows;
}

TEST(CheckFigures, NoChange) {
  const Diff growth = growth_of(two_blocks(), two_blocks());
  EXPECT_EQ(growth.peak_reserved.change_bytes(), 0);
  for (const DiffRow& row : growth.rows) EXPECT_EQ(row.presence, DiffPresence::both) << row.name;
}

TEST(CheckFigures, ANewBlockIsOneRowWithAllBelowIt) {
  std::vector<TestRow> now = two_blocks();
  now.push_back({"h.2", "Block", 1, 0, 100});
  now.push_back({"h.2.fc", "Linear", 8, 400, 0});
  now.push_back({"h.2.act", "ReLU", 8, 0, 50});
  const Diff growth = growth_of(two_blocks(), now);
  EXPECT_EQ(growth.rows.front().name, "h.2");
  EXPECT_EQ(growth.rows.front().presence, DiffPresence::added);
  EXPECT_EQ(growth.rows.front().modules_below, 2);
  EXPECT_EQ(growth.rows.front().total.change_bytes(), 550);
  EXPECT_EQ(growth_row(growth, "h.1")->total.change_bytes(), 0);
}

TEST(CheckFigures, AModuleThatHeldNothingIsNotNew) {
  std::vector<TestRow> now = two_blocks();
  now[4].activations_bytes = 70;
  now[7].parameters_bytes = 30;  // it has parameters, of less than a thousandth before
  std::vector<TestRow> before = two_blocks();
  before[3].parameters_bytes = 400000;
  now[3].parameters_bytes = 400000;
  const Diff growth = growth_of(before, now);
  for (const DiffRow& row : growth.rows) EXPECT_EQ(row.presence, DiffPresence::both) << row.name;
}

TEST(CheckFigures, SmallModulesShareARow) {
  std::vector<TestRow> rows = {{"", "Net", -1, 0, 0}};
  for (int i = 0; i < 50; ++i) rows.push_back({"small." + std::to_string(i), "Linear", 0, 10, 0});
  rows.push_back({"large", "Linear", 0, 1000000, 0});
  Breakdown folded = test_breakdown(rows);
  fold_small_modules({}, &folded);
  const CardFigures figures = figures_of(Analysis(), folded, std::nullopt);
  ASSERT_EQ(figures.modules.size(), 2U);
  EXPECT_EQ(figures.modules[0].name, "large");
  EXPECT_EQ(figures.modules[1].name, kSmallModules);
  EXPECT_EQ(figures.modules[1].bytes[static_cast<size_t>(Category::parameters)], 500);
  rows[3].activations_bytes = 40000;  // now large
  const Diff growth = growth_of({rows.begin(), rows.end() - 1}, rows);
  EXPECT_EQ(growth.rows.front().name, "large");
}

TEST(CheckFigures, AModuleThatIsGoneIsARow) {
  std::vector<TestRow> now = two_blocks();
  now.resize(5);
  const Diff growth = growth_of(two_blocks(), now);
  ASSERT_NE(growth_row(growth, "h.1.fc"), nullptr);
  EXPECT_EQ(growth_row(growth, "h.1.fc")->presence, DiffPresence::gone);
  EXPECT_EQ(growth.peak_reserved.change_bytes(), -500);
}

TEST(CheckFigures, TheSameModuleOfAllLayersIsOneRow) {
  std::vector<TestRow> now = two_blocks();
  now[2].activations_bytes += 10;
  now[5].activations_bytes += 30;
  now[3].parameters_bytes += 5;
  const Diff growth = growth_of(two_blocks(), now);
  std::vector<const DiffRow*> largest;
  const std::vector<GrownModule> rows = rows_of_layers(growth.rows, &largest);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].row.name, "h.*");
  EXPECT_EQ(rows[0].layers, 2);
  EXPECT_EQ(rows[0].row.total.change_bytes(), 40);
  EXPECT_EQ(rows[0].row.categories[static_cast<size_t>(Category::activations)].change_bytes(), 40);
  EXPECT_EQ(largest[0]->name, "h.1");
  EXPECT_EQ(rows[1].row.name, "h.0.fc") << "one layer alone keeps its name";
}

// ---- limits ------------------------------------------------------------------------------------------------------------------

LimitResult growth_limit(const std::string& text, int64_t before_bytes, int64_t after_bytes) {
  Job job;
  job.limits = {{Figure::growth, text, 0, 0, {}}};
  Diff growth;
  growth.peak_reserved = {before_bytes, after_bytes};
  return judge_limits(job, Prediction(), CardFigures(), &growth).front();
}

TEST(CheckLimits, GrowthOfSixPercentBreaksFiveAndFourDoesNot) {
  EXPECT_EQ(growth_limit("5%", 1000 * kTestMiB, 1060 * kTestMiB).outcome, Outcome::broken);
  EXPECT_EQ(growth_limit("5%", 1000 * kTestMiB, 1040 * kTestMiB).outcome, Outcome::passed);
  EXPECT_EQ(growth_limit("5%", 1000 * kTestMiB, 1050 * kTestMiB).outcome, Outcome::passed) << "exactly the limit";
  EXPECT_EQ(growth_limit("5%", 1000 * kTestMiB, 500 * kTestMiB).outcome, Outcome::passed);
  EXPECT_EQ(growth_limit("50MiB", 1000 * kTestMiB, 1060 * kTestMiB).outcome, Outcome::broken);
  EXPECT_EQ(growth_limit("60 MiB", 1000 * kTestMiB, 1060 * kTestMiB).outcome, Outcome::passed);
  EXPECT_EQ(growth_limit("0", 1000 * kTestMiB, 1002 * kTestMiB).outcome, Outcome::broken);
}

TEST(CheckLimits, WithoutABaselineGrowthIsUnknown) {
  Job job;
  job.limits = {{Figure::growth, "5%", 0, 0, {}}};
  EXPECT_EQ(judge_limits(job, Prediction(), CardFigures(), nullptr).front().outcome, Outcome::unknown);
}

TEST(CheckLimits, OfEveryFigure) {
  Job job;
  job.limits = {{Figure::fits, "", 0, 0, {}},
                {Figure::peak_reserved, "100 MiB", 100 * kTestMiB, 0, {}},
                {Figure::device_total, "300 MiB", 300 * kTestMiB, 0, {}},
                {Figure::step_time, "10 ms", 0, 10e6, {}}};
  CardFigures figures = test_figures({test_module("fc", "Linear", 100 * kTestMiB, 0)});
  figures.step_ns = 10000000;
  Prediction prediction;
  prediction.verdict = Verdict::tight;
  for (const LimitResult& limit : judge_limits(job, prediction, figures, nullptr))
    EXPECT_EQ(limit.outcome, Outcome::passed) << limit.sentence;
  figures.peak_reserved_bytes += 1;
  figures.device_request_bytes += 1;
  figures.step_ns = 10000001;
  prediction.verdict = Verdict::does_not_fit;
  for (const LimitResult& limit : judge_limits(job, prediction, figures, nullptr))
    EXPECT_EQ(limit.outcome, Outcome::broken) << limit.sentence;
}

// Rank 0 needs most in all, and rank 1 reserves most.
TEST(CheckLimits, ALimitHoldsForTheRankWithTheMost) {
  Job job;
  job.limits = {{Figure::peak_reserved, "100 MiB", 100 * kTestMiB, 0, {}}, {Figure::device_total, "500 MiB", 500 * kTestMiB, 0, {}}};
  CardFigures figures;
  figures.peak_reserved_bytes = 90 * kTestMiB;
  figures.device_request_bytes = 400 * kTestMiB;
  Prediction prediction;
  prediction.world_size = 2;
  prediction.ranks = Ranks();
  prediction.ranks->lines.resize(2);
  prediction.ranks->lines[0] = {.rank = 0, .reserved_bytes = 90 * kTestMiB, .request_bytes = 400 * kTestMiB, .capture_path = ""};
  prediction.ranks->lines[1] = {.rank = 1, .reserved_bytes = 101 * kTestMiB, .request_bytes = 300 * kTestMiB, .capture_path = ""};
  const std::vector<LimitResult> limits = judge_limits(job, prediction, figures, nullptr);
  EXPECT_EQ(limits[0].outcome, Outcome::broken);
  EXPECT_EQ(limits[0].of->rank, 1);
  EXPECT_EQ(limits[1].outcome, Outcome::passed);
  EXPECT_EQ(limits[1].of->rank, 0);
}

}  // namespace
}  // namespace gpucast::check

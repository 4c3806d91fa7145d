#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/bytes.h"
#include "src/report/diff_reports.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

DiffRow row(const std::string& name, const std::string& type, int64_t before_mib, int64_t after_mib, size_t category = 0) {
  DiffRow out;
  out.name = name;
  out.type = type;
  out.total = {before_mib * kMiB, after_mib * kMiB};
  out.categories.resize(3);
  out.categories[category] = out.total;
  return out;
}

Diff example_diff() {
  Diff d;
  d.before = {"main.gpucast", "vgpu", "l4", "2.6.0+cu124", 3, {10, "backward", 2, "fc (Linear)", {}}};
  d.after = {"pr.gpucast", "vgpu", "l4", "2.14.1+cu130", 1, {12, "forward", 1, "", {}}};
  d.peak_reserved = {2000 * kMiB, 2120 * kMiB};
  d.peak_allocated = {1900 * kMiB, 1970 * kMiB};
  d.device = {2400 * kMiB, 2520 * kMiB};
  d.free_bytes = {100 * kMiB, 150 * kMiB};
  d.categories = {{"activations", {900 * kMiB, 980 * kMiB}}, {"parameters", {1000 * kMiB, 990 * kMiB}}, {"optimizer_state", {0, 0}}};
  d.rows = {row("transformer.h.1.attn", "Attention", 400, 480), row("transformer.h.0", "Block", 0, 30, 1), row("old", "Linear", 40, 0, 1),
            row("wte", "Embedding", 1460, 1460, 1)};
  d.rows[1].presence = DiffPresence::added;
  d.rows[1].modules_below = 7;
  d.rows[2].presence = DiffPresence::gone;
  d.notes = {"PyTorch differs: 2.6.0+cu124 before, 2.14.1+cu130 after."};
  d.fail_above = FailAbove{"5%", 100 * kMiB, true};
  return d;
}

void expect_columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(width(line), 100u) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
  }
}

TEST(DiffText, Whole) {
  EXPECT_EQ(diff_text(example_diff(), false),
            R"(FAIL Peak reserved grew by 120.00 MiB (+6.0 %), from 2000.00 to 2120.00 MiB: above the allowed 5%
  before  main.gpucast: virtual GPU, 3 optimizer steps, l4, torch 2.6.0+cu124
          peak at backward, step 2, in fc (Linear)
  after   pr.gpucast: virtual GPU, 1 optimizer step, l4, torch 2.14.1+cu130
          peak at forward, step 1
  note    PyTorch differs: 2.6.0+cu124 before, 2.14.1+cu130 after.

MiB                                               before         after        change
Peak reserved                                    2000.00       2120.00       +120.00     +6.0 %
On the card in all                               2400.00       2520.00       +120.00     +5.0 %
Peak allocated                                   1900.00       1970.00        +70.00     +3.7 %
  activations                                     900.00        980.00        +80.00     +8.9 %
  parameters                                     1000.00        990.00        -10.00     -1.0 %
  free, but reserved, at the peak                 100.00        150.00        +50.00    +50.0 %

By module, MiB                                            before    after   change activat.   params
transformer.h.1.attn (Attention)                           400.0    480.0    +80.0    +80.0        .
old (Linear), gone                                          40.0        .    -40.0        .    -40.0
transformer.h.0 (Block), new, 7 below                          .     30.0    +30.0        .    +30.0
1 row without a change: 1.43 GiB
)");
}

TEST(DiffText, LayersShareARow) {
  Diff d = example_diff();
  d.rows = {row("h.0.fc", "Linear", 10, 30), row("h.1.fc", "Linear", 10, 30), row("h.1.act", "GELU", 5, 6), row("h.2.fc", "Conv1D", 1, 2)};
  const std::string text = diff_text(d, false);
  EXPECT_NE(text.find("\nh.*.fc x 2 (Linear)"), std::string::npos) << text;
  EXPECT_NE(text.find("20.0     60.0    +40.0"), std::string::npos) << text;
  EXPECT_NE(text.find("\nh.1.act (GELU)"), std::string::npos) << text;
  EXPECT_NE(text.find("\nh.2.fc (Conv1D)"), std::string::npos) << text;
}

TEST(DiffText, NoChange) {
  Diff d = example_diff();
  d.peak_reserved.after_bytes = d.peak_reserved.before_bytes;
  d.rows = {row("wte", "Embedding", 1, 1)};
  d.fail_above.reset();
  const std::string text = diff_text(d, false);
  EXPECT_EQ(text.rfind("Peak reserved is the same, 2000.00 MiB\n", 0), 0u);
  EXPECT_NE(text.find("By module: no change (1 row)."), std::string::npos);
  EXPECT_EQ(text.find("FAIL"), std::string::npos);
}

TEST(DiffText, LongNamesManyRowsAndColours) {
  Diff d = example_diff();
  d.before.file = std::string(300, 'f');
  d.after.peak.module = std::string(300, 'm') + "\x1b[31m";
  d.rows.clear();
  for (int i = 0; i < 60; ++i) {
    d.rows.push_back(row("a.very.long.path.of.modules.that.goes.on.and.on.layer" + std::to_string(i), std::string(60, 'T'), 0, 100 - i,
                         static_cast<size_t>(i % 3)));
    d.rows.back().presence = DiffPresence::added;
    d.rows.back().modules_below = 1000;
  }
  const std::string text = diff_text(d, false);
  expect_columns(text);
  EXPECT_NE(text.find("…"), std::string::npos) << "cut names are marked";
  EXPECT_NE(text.find("40 others"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << "no escape sequence out of a name";
  EXPECT_EQ(diff_text(d, true).rfind("\x1b[1;31mFAIL", 0), 0u);
  d.fail_above->exceeded = false;
  EXPECT_EQ(diff_text(d, true).rfind("\x1b[1;32mOK", 0), 0u);
}

TEST(DiffText, SmallChangesHaveTheirOwnUnit) {
  Diff d = example_diff();
  DiffRow tiny = row("fc", "Linear", 0, 0);
  tiny.total = tiny.categories[0] = {2048, 2560};
  d.rows = {tiny};
  const std::string text = diff_text(d, false);
  EXPECT_NE(text.find("By module, KiB"), std::string::npos);
  EXPECT_NE(text.find("2.0      2.5     +0.5"), std::string::npos) << text;
  d.rows.insert(d.rows.begin(), row("big", "Linear", 0, 5));
  EXPECT_NE(diff_text(d, false).find("1 other "), std::string::npos) << "0.0 MiB would say nothing";
}

TEST(DiffText, ARowThatOnlyMovedBetweenCategoriesIsShown) {
  Diff d = example_diff();
  DiffRow moved = row("fc", "Linear", 0, 0);
  moved.total = {kMiB, kMiB};
  moved.categories[0] = {kMiB, 0};
  moved.categories[1] = {0, kMiB};
  d.rows = {moved};
  EXPECT_NE(diff_text(d, false).find("fc (Linear)"), std::string::npos);
}

TEST(DiffJson, KeepsTheContract) {
  const auto json = nlohmann::json::parse(diff_json(example_diff()));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["before"]["file"], "main.gpucast");
  EXPECT_EQ(json["after"]["peak"]["step"], 1);
  EXPECT_EQ(json["peak_reserved"]["change_bytes"], 120 * kMiB);
  EXPECT_EQ(json["device"]["after_bytes"], 2520 * kMiB);
  EXPECT_EQ(json["categories"].size(), 3u);
  EXPECT_EQ(json["by"], "module");
  EXPECT_EQ(json["rows"][1]["presence"], "new");
  EXPECT_EQ(json["rows"][1]["modules_below"], 7);
  EXPECT_EQ(json["rows"][0]["categories"]["activations"]["change_bytes"], 80 * kMiB);
  EXPECT_FALSE(json["rows"][0]["categories"].contains("parameters"));
  EXPECT_EQ(json["fail_above"]["bytes"], 100 * kMiB);
  EXPECT_EQ(json["fail_above"]["exceeded"], true);
  EXPECT_EQ(json["notes"].size(), 1u);
  Diff d = example_diff();
  d.fail_above.reset();
  d.rows[0].name = "\xff";
  EXPECT_TRUE(nlohmann::json::parse(diff_json(d))["fail_above"].is_null());
}

TEST(DiffMarkdown, Whole) {
  Diff d = example_diff();
  d.rows.resize(2);
  EXPECT_EQ(diff_markdown(d),
            R"(### ❌ GPU memory: Peak reserved grew by 120.00 MiB (+6.0 %), from 2000.00 to 2120.00 MiB: above the allowed 5%

|  | before | after | change |
|---|---:|---:|---:|
| Peak reserved | 2000.00 MiB | 2120.00 MiB | +120.00 MiB (+6.0 %) |
| Peak allocated | 1900.00 MiB | 1970.00 MiB | +70.00 MiB (+3.7 %) |
| On the card in all | 2400.00 MiB | 2520.00 MiB | +120.00 MiB (+5.0 %) |

- PyTorch differs: 2.6.0+cu124 before, 2.14.1+cu130 after.

<details>
<summary>By category, at the peak of allocated</summary>

| category | before | after | change |
|---|---:|---:|---:|
| activations | 900.00 MiB | 980.00 MiB | +80.00 MiB (+8.9 %) |
| parameters | 1000.00 MiB | 990.00 MiB | -10.00 MiB (-1.0 %) |
| free, but reserved, at the peak | 100.00 MiB | 150.00 MiB | +50.00 MiB (+50.0 %) |

</details>

<details>
<summary>By module: 2 of 2 rows changed</summary>

| module | before | after | change | of that |
|---|---:|---:|---:|---|
| <code>transformer.h.1.attn</code> (Attention) | 400.00 MiB | 480.00 MiB | +80.00 MiB (+20.0 %) | activations +80.0 MiB |
| <code>transformer.h.0</code> (Block), **new**, 7 below | 0.00 MiB | 30.00 MiB | +30.00 MiB | parameters +30.0 MiB |

</details>

<details>
<summary>What was compared</summary>

- before: <code>main.gpucast</code>, vgpu, l4, torch 2.6.0+cu124, 3 steps; peak at backward, step 2, in fc (Linear)
- after: <code>pr.gpucast</code>, vgpu, l4, torch 2.14.1+cu130, 1 step; peak at forward, step 1

</details>
)");
}

TEST(DiffMarkdown, NamesCannotBreakOut) {
  Diff d = example_diff();
  d.rows[0].name = "a|b`c</code></details><img src=x onerror=1>*d*_e_[f](g)\n@user #1 &amp; \\";
  const std::string text = diff_markdown(d);
  const size_t at = text.find("<code>a");
  ASSERT_NE(at, std::string::npos);
  const std::string line = text.substr(at, text.find('\n', at) - at);
  EXPECT_EQ(line.find("<img"), std::string::npos);
  EXPECT_EQ(line.find('`'), std::string::npos);
  EXPECT_EQ(line.find('*'), std::string::npos);
  EXPECT_EQ(line.find('_'), std::string::npos);
  EXPECT_EQ(line.find('['), std::string::npos);
  EXPECT_EQ(line.find('@'), std::string::npos);
  EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 5) << "the table's own";
  EXPECT_NE(line.find("a&#124;b&#96;c&#60;/code&#62;"), std::string::npos);
}

TEST(DiffMarkdown, FitsIntoAComment) {
  Diff d = example_diff();
  d.rows.clear();
  for (int i = 0; i < 5000; ++i) d.rows.push_back(row(std::string(500, '_') + std::to_string(i), std::string(500, '<'), 0, 1));
  EXPECT_LT(diff_markdown(d).size(), 65536u);
}

}  // namespace
}  // namespace gpucast

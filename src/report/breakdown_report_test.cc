#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "gpucast/report.h"
#include "src/base/bytes.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kAtPeak = static_cast<size_t>(Instant::peak), kAtMaximum = static_cast<size_t>(Instant::maximum);
constexpr size_t kParameters = 0, kActivations = 4;

void set(BreakdownRow* row, size_t category, int64_t bytes) {
  for (const size_t moment : {kAtPeak, kAtMaximum}) {
    row->moments[moment].categories[category] = {bytes, bytes - 12};
    row->moments[moment].total.allocated_bytes += bytes;
    row->moments[moment].total.requested_bytes += bytes - 12;
  }
}

// A root with two layers; one has a long name.
Breakdown example_breakdown() {
  Breakdown b;
  b.categories = {"parameters", "gradients", "optimizer_state", "parameter_copies", "activations",   "intermediate_gradients",
                  "inputs",     "buffers",   "temporaries",     "workspaces",       "communication", "unattributed"};
  auto& rows = b.rows[static_cast<size_t>(Grouping::module)];
  rows.resize(4);
  rows[0].type = "Net";
  rows[1] = {"", "Net", 0, 1, true, {}};
  rows[2] = {"encoder", "Encoder", 0, 1, false, {}};
  rows[3] = {"encoder.projection_of_the_queries_and_the_keys_and_the_values", "Linear", 2, 2, false, {}};
  set(&rows[0], kParameters, 30 * kMiB);
  set(&rows[0], kActivations, 50 * kMiB);
  set(&rows[1], kParameters, 10 * kMiB);
  set(&rows[2], kParameters, 20 * kMiB);
  set(&rows[2], kActivations, 50 * kMiB);
  set(&rows[3], kActivations, 50 * kMiB);
  auto& operators = b.rows[static_cast<size_t>(Grouping::op)];
  for (int i = 0; i < 30; ++i) {
    operators.emplace_back().name = "train.py:" + std::to_string(i) + " \"f\", g";
    set(&operators.back(), kActivations, kMiB);
  }
  BreakdownMoment& peak = b.moments[kAtPeak];
  peak.known = true;
  peak.place = {7, "backward", 2, "encoder (Encoder)", {}};
  peak.allocated_bytes = 80 * kMiB;
  peak.reserved_bytes = 100 * kMiB;
  peak.figures = rows[0].moments[kAtPeak];
  b.moments[kAtMaximum].known = true;
  b.moments[kAtMaximum].figures = rows[0].moments[kAtMaximum];
  b.peak_reserved_bytes = 120 * kMiB;
  b.ledger = {{"CUDA context", "", 100 * kMiB, 112 * kMiB, 120 * kMiB, "measured: by hand"}};
  b.device = {220 * kMiB, 232 * kMiB, 240 * kMiB};
  return b;
}

TEST(BreakdownText, AddsUpFromTheCategoriesToTheCard) {
  EXPECT_EQ(breakdown_text(example_breakdown(), {}),
            "Where the memory goes, at the peak of allocated: backward, step 2, in encoder (Encoder)\n"
            "\n"
            "                                                       MiB\n"
            "  activations                                        50.00   62.5 %\n"
            "  parameters                                         30.00   37.5 %\n"
            "allocated                                            80.00\n"
            "  of that, rounding of sizes                          0.00    0.0 % of it\n"
            "  free in the allocator's segments                   20.00\n"
            "reserved by PyTorch then                            100.00\n"
            "  more at the peak of reserved                       20.00\n"
            "  CUDA context                                      112.00\n"
            "on the card in all                                  232.00\n"
            "\n"
            "                                                                                              activ-\n"
            "By module, MiB                                                               total   params   ations\n"
            "Net                                                                           80.0     30.0     50.0\n"
            "  (itself)                                                                    10.0     10.0        .\n"
            "  encoder (Encoder)                                                           70.0     20.0     50.0\n"
            "    projection_of_the_queries_and_the_keys_and_the_values (Linear)            50.0        .     50.0\n");
}

TEST(BreakdownText, KeepsToItsColumnsAndCutsNamesWithAMark) {
  Breakdown b = example_breakdown();
  for (auto& row : b.rows[static_cast<size_t>(Grouping::module)]) {
    for (size_t c = 0; c < kCategories; ++c) row.moments[kAtPeak].categories[c].allocated_bytes = 1234567890123;
  }
  b.moments[kAtPeak].figures = b.rows[static_cast<size_t>(Grouping::module)][0].moments[kAtPeak];
  for (const Grouping by : {Grouping::module, Grouping::op}) {
    BreakdownTextOptions options;
    options.by = by;
    std::istringstream lines(breakdown_text(b, options));
    std::string line;
    bool cut = false;
    while (std::getline(lines, line)) {
      EXPECT_LE(width(line), 100u) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
      cut = cut || line.find("…") != std::string::npos;
    }
    if (by == Grouping::module) {
      EXPECT_TRUE(cut);
    }
  }
}

TEST(BreakdownText, RowsThatAreLeftOutAreCounted) {
  BreakdownTextOptions options;
  options.by = Grouping::op;
  const std::string text = breakdown_text(example_breakdown(), options);
  EXPECT_NE(text.find("10 others (--rows 30)"), std::string::npos) << text;
  options = {};
  options.depth = 0;
  EXPECT_NE(breakdown_text(example_breakdown(), options).find("3 more rows below: --depth 2"), std::string::npos);
}

TEST(BreakdownText, SaysWhenAMomentIsNotKnown) {
  BreakdownTextOptions options;
  options.moment = Instant::forward_end;
  EXPECT_NE(breakdown_text(example_breakdown(), options).find("does not say where a forward ends"), std::string::npos);
}

TEST(BreakdownText, NamesCannotGarbleTheTerminal) {
  Breakdown b = example_breakdown();
  b.rows[static_cast<size_t>(Grouping::module)][2].name = "a\x1b[2Jb";
  EXPECT_EQ(breakdown_text(b, {}).find('\x1b'), std::string::npos);
}

TEST(BreakdownJson, KeepsTheContract) {
  const auto json = nlohmann::json::parse(breakdown_json(example_breakdown()));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["categories"].size(), kCategories);
  EXPECT_EQ(json["moments"]["peak"]["free_but_reserved_bytes"], 20 * kMiB);
  EXPECT_EQ(json["moments"]["peak"]["categories"]["activations"]["bytes"], 50 * kMiB);
  EXPECT_TRUE(json["moments"]["forward_end"].is_null());
  EXPECT_EQ(json["by"]["module"][0]["parent"], nullptr);
  EXPECT_EQ(json["by"]["module"][3]["parent"], 2);
  EXPECT_EQ(json["by"]["module"][3]["peak"]["categories"]["activations"]["requested_bytes"], 50 * kMiB - 12);
  EXPECT_FALSE(json["by"]["module"][3]["peak"]["categories"].contains("parameters"));
  EXPECT_EQ(json["device"]["expected_bytes"], 232 * kMiB);
}

TEST(BreakdownCsv, QuotesAndLeavesUnknownMomentsEmpty) {
  std::istringstream lines(breakdown_csv(example_breakdown(), Grouping::op));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "by,name,type,depth,itself,category,peak_bytes,peak_requested_bytes,forward_end_bytes,forward_end_requested_bytes,end_bytes,"
            "end_requested_bytes,maximum_bytes,maximum_requested_bytes");
  std::getline(lines, line);
  EXPECT_EQ(line, "operator,\"train.py:0 \"\"f\"\", g\",,0,0,activations,1048576,1048564,,,,,1048576,1048564");
}

TEST(TextWriter, CountsColumnsNotBytes) {
  EXPECT_EQ(width("a…é"), 3u);
  EXPECT_EQ(width("\x1b[1mab\x1b[0m"), 2u);
  EXPECT_EQ(cut_end("abcdef", 4), "abc…");
  EXPECT_EQ(cut_begin("abcdef", 4), "…def");
  EXPECT_EQ(cut_end("éééé", 4), "éééé");
  EXPECT_EQ(cut_end("ééééé", 4), "ééé…");
}

}  // namespace
}  // namespace gpucast

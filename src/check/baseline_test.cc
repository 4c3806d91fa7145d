#include "src/check/baseline.h"

#include <gtest/gtest.h>

#include <string>

#include "gpucast/error.h"
#include "src/check/test_check.h"

namespace gpucast::check {
namespace {

Baseline two_jobs() {
  Baseline out;
  out.jobs["b \"quoted\""]["l4"] = test_figures({test_module("", "Net", 1, 2), test_module("(outside of modules)", "", 0, 3)});
  out.jobs["a"]["rtx4090"] = test_figures({test_module("fc", "Linear", 5, 0)});
  out.jobs["a"]["rtx4090"].step_ns = 1200000;
  return out;
}

std::string baseline_problem(const std::string& text) {
  try {
    parse_baseline(text, "base.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.where, "base.json");
    EXPECT_NE(error.hint.find("--update-baseline"), std::string::npos);
    return error.what();
  }
  return "none";
}

TEST(CheckBaseline, ReadsWhatItWrites) {
  const std::string text = baseline_text(two_jobs());
  const Baseline read = parse_baseline(text, "base.json");
  EXPECT_EQ(baseline_text(read), text);
  ASSERT_NE(read.find("a", "rtx4090"), nullptr);
  EXPECT_EQ(read.find("a", "rtx4090")->step_ns, 1200000);
  EXPECT_EQ(read.find("a", "rtx4090")->modules[0].bytes[0], 5);
  EXPECT_EQ(read.find("b \"quoted\"", "l4")->modules[1].name, "(outside of modules)");
  EXPECT_FALSE(read.find("b \"quoted\"", "l4")->step_ns.has_value());
  EXPECT_EQ(read.find("a", "l4"), nullptr);
  EXPECT_EQ(read.find("c", "l4"), nullptr);
  EXPECT_LT(text.find("\"a\""), text.find("\"b ")) << "sorted by name";
  EXPECT_NE(text.find("\n          {\"name\":\"fc\",\"type\":\"Linear\",\"parameters\":5}\n"), std::string::npos) << text;
}

TEST(CheckBaseline, NoFileIsAnEmptyBaseline) {
  const Baseline none = read_baseline(testing::TempDir() + "/no such file.json");
  EXPECT_FALSE(none.exists);
  EXPECT_TRUE(none.jobs.empty());
}

TEST(CheckBaseline, ADamagedFileIsAnError) {
  EXPECT_EQ(baseline_problem(""), "this is no baseline of gpucast check");
  EXPECT_EQ(baseline_problem("<<<<<<< HEAD\n{}"), "this is no baseline of gpucast check");
  EXPECT_EQ(baseline_problem(R"({"jobs": []})"), "this is no baseline of gpucast check");
  EXPECT_EQ(baseline_problem(R"({"schema_version": 2, "jobs": {}})"), "the baseline has schema version 2, and this gpucast reads 1");
  EXPECT_NE(baseline_problem(R"({"schema_version": 1, "jobs": {"a": 3}})"), "none");
  EXPECT_NE(baseline_problem(R"({"schema_version": 1, "jobs": {"a": {"l4": {"steps": 3}}}})"), "none");
  std::string negative = baseline_text(two_jobs());
  negative.replace(negative.find("\"peak_reserved_bytes\": ") + 23, 1, "-");
  EXPECT_NE(baseline_problem(negative), "none");
  EXPECT_THROW(read_baseline(testing::TempDir()), Error);
}

}  // namespace
}  // namespace gpucast::check

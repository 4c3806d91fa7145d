#include "src/check/reports.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "src/base/json.h"
#include "src/check/test_check.h"
#include "src/check/user_lines.h"
#include "src/check/words.h"

namespace gpucast::check {
namespace {

GrownModule grown_module(const std::string& name, int64_t change_bytes, const std::string& frame) {
  GrownModule out;
  out.row.name = name;
  out.row.type = "Linear";
  out.row.total = {kTestMiB, kTestMiB + change_bytes};
  out.row.categories.resize(kCategories);
  out.row.categories[static_cast<size_t>(Category::parameters)] = out.row.total;
  out.frame = frame;
  return out;
}

// Job "a<b" breaks its growth on one card; job "raised" failed.
CheckResult mixed_result() {
  CheckResult out;
  out.config = "ci/gpucast.toml";
  out.baseline = "ci/gpucast.baseline.json";
  out.folder = "/repo/ci";
  out.root = "/repo";
  JobResult job;
  job.job.name = "a<b";
  job.job.place = {3, 1};
  job.seconds = 2.5;
  CardResult card;
  card.gpu_id = "l4";
  card.verdict = Verdict::fits;
  card.limits.push_back({{Figure::fits, "", 0, 0, {3, 1}}, Outcome::passed, "1.00 MiB", "2.00 MiB", "1 MiB to spare", JobRank()});
  card.limits.push_back(
      {{Figure::growth, "5%", 0, 0, {7, 12}}, Outcome::broken, "+3.00 MiB", "5%", "Peak reserved grew & grew", JobRank()});
  card.growth.emplace();
  card.growth->peak_reserved = {kTestMiB, 4 * kTestMiB};
  for (size_t c = 0; c < kCategories; ++c) card.growth->categories.push_back({category_name(static_cast<Category>(c)), {}});
  card.grown = {grown_module("fc|1", 2 * kTestMiB, "train.py:17 main"), grown_module("fc2", kTestMiB, "/repo/lib/a b.py:3 f"),
                grown_module("fc3", kTestMiB, "/elsewhere/x.py:9 f"), grown_module("fc4", kTestMiB, "")};
  card.run_line = "gpucast run --gpu l4 -- python train.py";
  job.cards.push_back(card);
  out.jobs.push_back(job);
  JobResult raised;
  raised.job.name = "raised";
  raised.job.place = {9, 1};
  raised.problem = run::JobProblem{"script_raised", "the script raised", "train.py", "run it"};
  raised.printed = std::string("Trace\x1b[0m </system-out> \xff\n");
  out.jobs.push_back(raised);
  return out;
}

TEST(CheckReports, SarifHasRulesResultsAndPlaces) {
  const Json sarif = Json::parse(check_sarif(mixed_result()));
  EXPECT_EQ(sarif["version"].get<std::string>(), "2.1.0");
  const Json& run = sarif["runs"].at(0);
  const Json& rules = run["tool"]["driver"]["rules"];
  ASSERT_EQ(run["results"].size(), 2U);
  for (const Json& result : run["results"]) {
    const auto index = result["ruleIndex"].get<size_t>();
    ASSERT_LT(index, rules.size());
    EXPECT_EQ(rules.at(index)["id"].get<std::string>(), result["ruleId"].get<std::string>());
    EXPECT_FALSE(result["message"]["text"].get<std::string>().empty());
    EXPECT_EQ(result["locations"].at(0)["physicalLocation"]["artifactLocation"]["uri"].get<std::string>(), "ci/gpucast.toml");
  }
  const Json& growth = run["results"].at(0);
  EXPECT_EQ(growth["ruleId"].get<std::string>(), "gpucast/growth");
  EXPECT_EQ(growth["locations"].at(0)["physicalLocation"]["region"]["startLine"].get<int>(), 7);
  ASSERT_EQ(growth["relatedLocations"].size(), 2U) << "only lines in the repository";
  EXPECT_EQ(growth["relatedLocations"].at(0)["physicalLocation"]["artifactLocation"]["uri"].get<std::string>(), "ci/train.py");
  EXPECT_EQ(growth["relatedLocations"].at(0)["physicalLocation"]["region"]["startLine"].get<int>(), 17);
  EXPECT_EQ(growth["relatedLocations"].at(1)["physicalLocation"]["artifactLocation"]["uri"].get<std::string>(), "lib/a%20b.py");
  EXPECT_EQ(run["results"].at(1)["ruleId"].get<std::string>(), "gpucast/job-failed");
  EXPECT_FALSE(run["invocations"].at(0)["executionSuccessful"].get<bool>());
}

TEST(CheckReports, SarifOfASuccessHasNoResults) {
  CheckResult result = mixed_result();
  result.jobs.resize(1);
  result.jobs[0].cards[0].limits[1].outcome = Outcome::passed;
  const Json run = Json::parse(check_sarif(result))["runs"].at(0);
  EXPECT_TRUE(run["results"].is_array());
  EXPECT_TRUE(run["results"].empty());
  EXPECT_TRUE(run["invocations"].at(0)["executionSuccessful"].get<bool>());
}

TEST(CheckReports, JunitCountsAndEscapes) {
  const std::string xml = check_junit(mixed_result());
  EXPECT_NE(xml.find("<testsuites name=\"gpucast check\" tests=\"2\" failures=\"1\" errors=\"1\" skipped=\"0\" time=\"2.500\">"),
            std::string::npos)
      << xml;
  EXPECT_NE(xml.find("<testcase classname=\"a&lt;b\" name=\"l4\" time=\"2.500\">"), std::string::npos) << xml;
  EXPECT_NE(xml.find("message=\"Peak reserved grew &amp; grew\""), std::string::npos);
  EXPECT_NE(xml.find("(ci/train.py:17)"), std::string::npos);
  EXPECT_NE(xml.find("Trace?[0m &lt;/system-out&gt;"), std::string::npos) << xml;
  EXPECT_EQ(xml.find('\x1b'), std::string::npos);
  EXPECT_EQ(xml.find('\xff'), std::string::npos);
}

TEST(CheckReports, MarkdownNamesTheModuleAndItsLine) {
  const std::string markdown = check_markdown(mixed_result());
  EXPECT_TRUE(markdown.starts_with("### ❌ GPU check: 1 of 2 limits is broken, 1 job failed\n")) << markdown;
  EXPECT_NE(markdown.find("<code>fc&#124;1 (Linear)</code>"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("<code>ci/train.py:17</code>"), std::string::npos);
  EXPECT_NE(markdown.find("<details open>"), std::string::npos);
}

TEST(CheckReports, MarkdownStaysBelowTheLimitOfAComment) {
  CheckResult result = mixed_result();
  for (int i = 0; i < 500; ++i) result.jobs.push_back(result.jobs.front());
  EXPECT_LT(check_markdown(result).size(), 65536U);
  EXPECT_NE(check_markdown(result).find("left out"), std::string::npos);
}

TEST(CheckReports, TextFitsAScreen) {
  const std::string text = check_text(mixed_result(), false);
  EXPECT_TRUE(text.starts_with("FAIL 1 of 2 limits is broken, 1 job failed\n")) << text;
  EXPECT_NE(text.find("growth in ci/gpucast.toml:7:12"), std::string::npos) << text;
  EXPECT_NE(text.find("fc|1 (Linear): parameters +2.0 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("gpucast check --update-baseline"), std::string::npos);
}

TEST(CheckReports, ExitCodes) {
  CheckResult result = mixed_result();
  EXPECT_EQ(result.exit_code(), 2);
  result.jobs.resize(1);
  EXPECT_EQ(result.exit_code(), 1);
  result.jobs[0].cards[0].limits[1].outcome = Outcome::unknown;
  EXPECT_EQ(result.exit_code(), 0);
}

TEST(CheckReports, PartsOfAFrame) {
  EXPECT_EQ(source_line("/a b/c.py:17 main")->file, "/a b/c.py");
  EXPECT_EQ(source_line("c.py:17 <module>")->line, 17);
  EXPECT_FALSE(source_line("").has_value());
  EXPECT_FALSE(source_line("c.py main").has_value());
  EXPECT_EQ(relative_to("/repo/a/b.py", "/repo"), "a/b.py");
  EXPECT_EQ(relative_to("/repository/b.py", "/repo"), "/repository/b.py");
}

TEST(CheckReports, EachFormNamesTheRank) {
  CheckResult result = mixed_result();
  CardResult& card = result.jobs[0].cards[0];
  card.deciding = {1, 1, 2, false};
  for (LimitResult& limit : card.limits) limit.of = card.deciding;
  card.limits.push_back({{Figure::step_time, "1 ms", 0, 1e6, {8, 1}}, Outcome::broken, "2 ms", "1 ms", "A step takes 2 ms", std::nullopt});
  for (const std::string& name : report_names()) {
    const std::string report = report_as(name, result);
    EXPECT_NE(report.find(name == "json" ? "\"ranks\"" : "rank 1 of 2"), std::string::npos) << report;
    EXPECT_NE(report.find(name == "json" ? "\"rank\"" : "2 ranks"), std::string::npos) << report;
  }
  const Json json = Json::parse(check_json(result));
  const Json& limits = json["jobs"].at(0)["cards"].at(0)["limits"];
  EXPECT_EQ(limits.at(1)["rank"].get<int64_t>(), 1);
  EXPECT_TRUE(limits.at(2)["rank"].is_null());
  card.deciding = {0, 1, 1, true};
  card.limits[1].of = card.deciding;
  EXPECT_EQ(where_words(result.jobs[0], card, card.limits[1]), "a<b on l4, cuda:1");
}

TEST(CheckReports, ALimitOfTheStepsTimeNamesTheCommandThatShowsIt) {
  CheckResult result = mixed_result();
  JobResult& job = result.jobs.front();
  job.job.folder = "gpucast run x";
  CardResult& card = job.cards.front();
  card.time_line = "gpucast time --gpu l4 -- python train.py";
  card.limits = {{{Figure::step_time, "1ms", 0, 0, {7, 12}}, Outcome::broken, "2 ms", "1 ms", "A step is longer", JobRank()}};
  const std::string text = check_text(result, false);
  EXPECT_NE(text.find("look closer: cd 'gpucast run x' && gpucast time --gpu l4 -- python train.py\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace gpucast::check

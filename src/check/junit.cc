// JUnit XML as CI systems read it: a test suite for each job, a test case for each card.

#include <fmt/core.h>
#include <fmt/format.h>

#include <iterator>
#include <string>

#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/base/markup.h"
#include "src/check/reports.h"
#include "src/check/words.h"
#include "src/report/diff_reports.h"

namespace gpucast::check {
namespace {

constexpr size_t kMostGrownInCase = 5;

// XML 1.0 has no other control characters than tab and the line breaks, and attributes lose their line breaks.
std::string xml(std::string_view text, bool attribute) {
  const std::string quoted = Json(text).dump();  // replaces what is not UTF-8
  const std::string valid = Json::parse(quoted).get<std::string>();
  std::string out;
  for (const char c : valid) {
    const auto byte = static_cast<unsigned char>(c);
    if (append_entity(c, &out)) continue;
    if (c == '\n' && attribute)
      out += "&#10;";
    else if (byte < 0x20 && c != '\t' && c != '\n')
      out += '?';
    else
      out += c;
  }
  return out;
}
std::string attribute(std::string_view text) { return xml(text, true); }
std::string element(const char* name, std::string_view text) { return fmt::format("      <{0}>{1}</{0}>\n", name, xml(text, false)); }

std::string grown_lines(const CheckResult& result, const JobResult& job, const CardResult& card) {
  std::string out;
  for (size_t i = 0; i < std::min(card.grown.size(), kMostGrownInCase); ++i) {
    const std::string line = line_words(result, job, card.grown[i]);
    fmt::format_to(std::back_inserter(out), "+{} {}: {}{}\n", format_bytes(card.grown[i].row.total.change_bytes()),
                   module_words(card.grown[i]), category_changes(*card.growth, card.grown[i].row), line.empty() ? "" : " (" + line + ")");
  }
  return out;
}

std::string sentence_of(const CardResult& card, const LimitResult& limit) {
  const std::string rank = rank_words(card, limit.of);
  return rank.empty() ? limit.sentence : fmt::format("{}: {}", rank, limit.sentence);
}

std::string case_output(const JobResult& job, const CardResult& card) {
  std::string out;
  for (const LimitResult& limit : card.limits)
    fmt::format_to(std::back_inserter(out), "{}: {}. {}\n", figure_words(limit.limit.figure), outcome_name(limit.outcome),
                   sentence_of(card, limit));
  for (const std::string& note : card.notes) out += note + "\n";
  if (!card.run_line.empty()) out += in_folder(job, card.run_line) + "\n";
  return out;
}

void write_case(const std::string& suite, const std::string& name, double seconds, const std::string& inside, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\">\n{}    </testcase>\n",
                 attribute(suite), attribute(name), seconds, inside);
}

struct Counts {
  int64_t tests = 0, failures = 0, errors = 0;
  double seconds = 0;
};

std::string attributes(const Counts& counts) {
  return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{:.3f}\"", counts.tests, counts.failures,
                     counts.errors, counts.seconds);
}

// The run's time is the first card's: cards may share a capture.
std::string suite_text(const CheckResult& result, const JobResult& job, Counts* counts) {
  std::string cases;
  counts->seconds = job.seconds;
  for (const CardResult& card : job.cards) {
    std::string failures;
    for (const LimitResult& limit : card.limits)
      if (limit.outcome == Outcome::broken) failures += (failures.empty() ? "" : "\n") + sentence_of(card, limit);
    std::string inside;
    if (!failures.empty())
      inside = fmt::format("      <failure type=\"limit\" message=\"{}\">{}</failure>\n", attribute(failures),
                           xml(failures + "\n" + grown_lines(result, job, card), false));
    inside += element("system-out", case_output(job, card));
    write_case(job.job.name, card.gpu_id, counts->tests == 0 ? job.seconds : 0, inside, &cases);
    ++counts->tests;
    counts->failures += failures.empty() ? 0 : 1;
  }
  if (job.problem) {
    std::string inside = fmt::format("      <error type=\"{}\" message=\"{}\"></error>\n", attribute(job.problem->code),
                                     attribute(problem_words(*job.problem)));
    if (!job.printed.empty()) inside += element("system-out", job.printed);
    write_case(job.job.name, "run", job.seconds, inside, &cases);
    ++counts->tests;
    ++counts->errors;
  }
  return fmt::format("  <testsuite name=\"{}\" {}>\n{}  </testsuite>\n", attribute(job.job.name), attributes(*counts), cases);
}

}  // namespace

std::string check_junit(const CheckResult& result) {
  std::string suites;
  Counts all;
  for (const JobResult& job : result.jobs) {
    Counts counts;
    suites += suite_text(result, job, &counts);
    all.tests += counts.tests;
    all.failures += counts.failures;
    all.errors += counts.errors;
    all.seconds += counts.seconds;
  }
  return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"gpucast check\" {}>\n{}</testsuites>\n",
                     attributes(all), suites);
}

}  // namespace gpucast::check

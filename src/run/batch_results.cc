#include "src/run/batch_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "gpucast/error.h"
#include "src/base/json.h"

namespace gpucast::run {
namespace {

constexpr int kResultsSchemaVersion = 1;

Json problem_json(const JobProblem& problem) {
  return {{"code", problem.code}, {"message", problem.message}, {"where", problem.where}, {"to_do", problem.to_do}};
}

std::string status_of(int exit_code, const Json& report) {
  if (exit_code == kExitNo) return "does_not_fit";
  if (exit_code != kExitYes) return "failed";
  const std::string verdict = report.value("verdict", "");
  return verdict == "tight" || verdict == "grows" ? "tight" : "fits";
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace

void Tally::count(const std::string& status) { ++(status == "failed" ? failed : status == "does_not_fit" ? do_not_fit : fit); }

std::string result_line(const JobEnd& end, Tally* tally) {
  const Json run = Json::parse(end.run_json);
  const bool whole = run.is_object() && run.contains("report") && run.contains("error");
  const int exit_code = end.problem ? int{kExitFailed} : end.exit_code;
  Json line;
  line["schema_version"] = kResultsSchemaVersion;
  line["name"] = end.name;
  line["status"] = status_of(exit_code, whole ? run["report"] : Json());
  line["exit_code"] = exit_code;
  line["seconds"] = std::round(end.seconds * 1000) / 1000;
  line["forked"] = end.forked;
  line["report"] = whole ? run["report"] : Json();
  line["error"] = end.problem ? problem_json(*end.problem) : whole ? run["error"] : Json();
  if (exit_code == kExitFailed) line["printed"] = end.printed;
  tally->count(line.value("status", ""));
  return line.dump() + "\n";
}

FormerResults read_results(const std::string& text, const std::string& path) {
  FormerResults former;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // incomplete
    ++number;
    const Json line = Json::parse(std::string_view(text).substr(begin, end - begin));
    const std::string name = line.value("name", ""), status = line.value("status", "");
    if (name.empty() || status.empty()) {
      throw Error("the results file holds something else than results", fmt::format("{}, line {}", path, number),
                  "name another file: -o results.jsonl");
    }
    former.status_by_name[name] = status;
    begin = end + 1;
    former.size_bytes = static_cast<int64_t>(begin);
  }
  // An incomplete line begins as all our lines do. Any other text without a newline belongs to some other file.
  const std::string torn = text.substr(static_cast<size_t>(former.size_bytes));
  const std::string ours = fmt::format("{{\"schema_version\":{}", kResultsSchemaVersion);
  if (torn.compare(0, ours.size(), ours, 0, std::min(torn.size(), ours.size())) != 0) {
    throw Error("the results file holds something else than results", path, "name another file: -o results.jsonl");
  }
  return former;
}

std::string last_lines(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  const size_t begin = text.size() - max_bytes;
  const size_t newline = text.find('\n', begin - 1);
  return text.substr(newline == std::string::npos || newline + 1 >= text.size() ? begin : newline + 1);
}

std::string last_line(const std::string& text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos) return "";
  const size_t before = text.find_last_of("\r\n", last);
  const size_t begin = text.find_first_not_of(" \t", before == std::string::npos ? 0 : before + 1);
  return text.substr(begin, last + 1 - begin);
}

std::string progress_text(const Tally& tally, int64_t done_now, int64_t jobs_left, double elapsed_s, bool more_to_come) {
  std::string text =
      fmt::format("{} done, {} failed, {}{} left", tally.job_count(), tally.failed, jobs_left, more_to_come ? " or more" : "");
  if (done_now > 0 && jobs_left > 0)
    text += ", " + duration_text(elapsed_s / static_cast<double>(done_now) * static_cast<double>(jobs_left));
  return text;
}

}  // namespace gpucast::run

// SARIF 2.1.0 (OASIS): a rule for each figure, a result for each broken limit and each failed job.

#include <fmt/core.h>

#include <cctype>
#include <filesystem>
#include <iterator>

#include "src/base/json.h"
#include "src/check/reports.h"
#include "src/check/words.h"
#include "src/report/diff_reports.h"
#include "src/report/json_parts.h"
#include "version.h"

namespace gpucast::check {
namespace {

constexpr size_t kMostRelated = 5;

struct Rule {
  const char *id, *name, *what;
};
// The first kFigures are in the order of Figure.
constexpr Rule kRules[] = {
    {"gpucast/fits", "DoesNotFit", "The job does not fit on the card."},
    {"gpucast/peak-reserved", "PeakReserved", "The allocator reserves more memory than allowed."},
    {"gpucast/device-total", "DeviceTotal", "The memory to request for the job is more than allowed."},
    {"gpucast/step-time", "StepTime", "A step takes longer than allowed."},
    {"gpucast/growth", "MemoryGrowth", "Peak reserved grew by more than allowed since the committed baseline."},
    {"gpucast/job-failed", "JobFailed", "The job could not be judged."},
};
constexpr size_t kFailedRule = kFigures;
static_assert(std::size(kRules) == kFigures + 1);

Json rule_json(const Rule& rule) {
  return {
      {"id", rule.id}, {"name", rule.name}, {"shortDescription", {{"text", rule.what}}}, {"defaultConfiguration", {{"level", "error"}}}};
}

// A path as the path of a URI.
std::string uri_of(const std::string& path) {
  static constexpr std::string_view kPlain = "-._~/!$'()*+,;=@";
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (std::isalnum(byte) != 0 || kPlain.find(c) != std::string_view::npos);
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

Json location_json(const std::string& path, int64_t line, int64_t column) {
  Json region{{"startLine", line}};
  if (column > 0) region["startColumn"] = column;
  return {{"physicalLocation", {{"artifactLocation", {{"uri", uri_of(path)}}}, {"region", std::move(region)}}}};
}

std::string config_path(const CheckResult& result) {
  return relative_to((std::filesystem::path(result.folder) / std::filesystem::path(result.config).filename()).string(), result.root);
}

Json result_json(size_t rule, const std::string& message, const std::string& what) {
  return {{"ruleId", kRules[rule].id},
          {"ruleIndex", rule},
          {"level", "error"},
          {"message", {{"text", message}}},
          {"partialFingerprints", {{"gpucastCheck/v1", fmt::format("{}:{}", kRules[rule].id, what)}}}};
}

// The user's lines of the modules that grew most.
Json related_json(const CheckResult& result, const JobResult& job, const CardResult& card) {
  Json out = Json::array();
  for (const GrownModule& grown : card.grown) {
    const auto line = line_of(result, job, grown);
    if (!line || line->file.starts_with('/')) continue;  // not in the repository
    Json location = location_json(line->file, line->line, 0);
    location["id"] = out.size() + 1;
    location["message"] = {{"text", fmt::format("{}: {}", module_words(grown), category_changes(*card.growth, grown.row))}};
    out.push_back(std::move(location));
    if (out.size() == kMostRelated) break;
  }
  return out;
}

}  // namespace

std::string check_sarif(const CheckResult& result) {
  Json results = Json::array();
  const auto add = [&](size_t rule, const std::string& message, const TextPlace& place, const std::string& what, Json related) {
    Json row = result_json(rule, message, what);
    row["locations"].push_back(location_json(config_path(result), place.line, place.column));
    row["relatedLocations"] = std::move(related);
    results.push_back(std::move(row));
  };
  for (const JobResult& job : result.jobs) {
    if (job.problem)
      add(kFailedRule, fmt::format("{} failed: {}", job.job.name, problem_words(*job.problem)), job.job.place, job.job.name, Json::array());
    for (const CardResult& card : job.cards)
      for (const LimitResult& limit : card.limits) {
        if (limit.outcome != Outcome::broken) continue;
        std::string message = fmt::format("{}: {}.", where_words(job, card, limit), limit.sentence);
        const bool memory = limit.limit.figure != Figure::step_time && card.growth;
        if (memory && !card.grown.empty())
          message += fmt::format(" Most of it is in {}: {}.", module_words(card.grown.front()),
                                 category_changes(*card.growth, card.grown.front().row));
        add(static_cast<size_t>(limit.limit.figure), message, limit.limit.place, fmt::format("{}:{}", job.job.name, card.gpu_id),
            memory ? related_json(result, job, card) : Json::array());
      }
  }
  Json rules = Json::array();
  for (const Rule& rule : kRules) rules.push_back(rule_json(rule));
  Json driver{{"name", "gpucast"}, {"version", kGpucastVersion}, {"semanticVersion", kGpucastVersion}, {"rules", std::move(rules)}};
  Json run{{"tool", {{"driver", std::move(driver)}}}};
  run["invocations"].push_back({{"executionSuccessful", result.failed_jobs() == 0}});
  run["columnKind"] = "unicodeCodePoints";
  run["results"] = std::move(results);
  Json out{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"version", "2.1.0"}};
  out["runs"].push_back(std::move(run));
  return dump(out);
}

}  // namespace gpucast::check

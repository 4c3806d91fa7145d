#include "src/check/words.h"

#include <fmt/core.h>

#include <filesystem>

#include "src/base/command_words.h"
#include "src/report/text_writer.h"

namespace gpucast::check {
namespace {

namespace fs = std::filesystem;

std::string counted(int64_t count, const char* noun) { return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s"); }

}  // namespace

std::string headline(const CheckResult& result) {
  const int64_t broken = result.limits(Outcome::broken), failed = result.failed_jobs(), unknown = result.limits(Outcome::unknown);
  const int64_t judged = result.limits(Outcome::passed) + broken;
  std::string out;
  if (broken > 0) out = fmt::format("{} of {} {} broken", broken, counted(judged, "limit"), broken == 1 ? "is" : "are");
  if (broken == 0 && judged > 0) out = fmt::format("{} hold{}", counted(judged, "limit"), judged == 1 ? "s" : "");
  if (broken == 0 && judged == 0 && failed == 0) out = "No limit was judged";
  if (unknown > 0) out += fmt::format("{}{} not judged", out.empty() ? "" : ", ", unknown);
  if (failed > 0) out += fmt::format("{}{} failed", out.empty() ? "" : ", ", counted(failed, "job"));
  return out;
}

std::string rank_words(const CardResult& card, const std::optional<JobRank>& rank) {
  if (!rank) return card.deciding.ranks > 1 ? counted(card.deciding.ranks, "rank") : "";
  std::string out = rank->ranks > 1 ? fmt::format("rank {} of {}", rank->rank, rank->ranks) : "";
  if (rank->has_more_devices) out += fmt::format("{}cuda:{}", out.empty() ? "" : ", ", rank->device);
  return out;
}

std::string card_words(const CardResult& card, const LimitResult& limit) {
  const std::string rank = rank_words(card, limit.of);
  return rank.empty() ? card.gpu_id : fmt::format("{}, {}", card.gpu_id, rank);
}

std::string where_words(const JobResult& job, const CardResult& card, const LimitResult& limit) {
  return fmt::format("{} on {}", job.job.name, card_words(card, limit));
}

std::string where_words(const JobResult& job, const CardResult& card) {
  LimitResult of_deciding;
  of_deciding.of = card.deciding;
  return where_words(job, card, of_deciding);
}

std::string module_words(const GrownModule& grown) {
  const DiffRow& row = grown.row;
  std::string out = row.name.empty() ? "(root)" : printable(row.name);
  if (!row.type.empty()) out += fmt::format(" ({})", printable(row.type));
  if (row.presence != DiffPresence::both) out += std::string(", ") + diff_presence_name(row.presence);
  if (grown.layers > 1) out += fmt::format(", {} layers", grown.layers);
  if (row.modules_below > 0) out += fmt::format(", {} below", row.modules_below);
  return out;
}

std::optional<SourceLine> line_of(const CheckResult& result, const JobResult& job, const GrownModule& grown) {
  std::optional<SourceLine> out = source_line(grown.frame);
  if (!out) return out;
  const fs::path absolute = (fs::path(result.folder) / job.job.folder / out->file).lexically_normal();
  out->file = relative_to(absolute.string(), result.root);
  return out;
}

std::string line_words(const CheckResult& result, const JobResult& job, const GrownModule& grown) {
  const std::optional<SourceLine> line = line_of(result, job, grown);
  return line ? fmt::format("{}:{}", line->file, line->line) : "";
}

std::string problem_words(const run::JobProblem& problem) {
  std::string out = problem.message;
  if (!problem.where.empty()) out += fmt::format(" ({})", problem.where);
  if (!problem.to_do.empty()) out += fmt::format("; to do: {}", problem.to_do);
  return out;
}

std::string in_folder(const JobResult& job, const std::string& line) {
  if (line.empty() || job.job.folder.empty()) return line;
  return fmt::format("cd {} && {}", shell_quote({job.job.folder}), line);
}

}  // namespace gpucast::check

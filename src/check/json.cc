#include "src/base/json.h"

#include "src/base/command_words.h"
#include "src/check/reports.h"
#include "src/check/words.h"
#include "src/report/diff_reports.h"
#include "src/report/json_parts.h"

namespace gpucast::check {
namespace {

Json change_json(const DiffBytes& bytes) {
  return {{"before_bytes", bytes.before_bytes}, {"after_bytes", bytes.after_bytes}, {"change_bytes", bytes.change_bytes()}};
}

Json categories_json(const Diff& growth, const std::vector<DiffBytes>& categories) {
  Json out = Json::object();
  for (size_t c = 0; c < categories.size(); ++c)
    if (categories[c].change_bytes() != 0) out[growth.categories[c].name] = change_json(categories[c]);
  return out;
}

Json limit_json(const LimitResult& limit) {
  return {{"figure", figure_name(limit.limit.figure)},
          {"limit", limit.limit.text},
          {"outcome", outcome_name(limit.outcome)},
          {"now", limit.now},
          {"sentence", limit.sentence},
          {"rank", limit.of ? Json(limit.of->rank) : Json(nullptr)},
          {"device", limit.of ? Json(limit.of->device) : Json(nullptr)},
          {"line", limit.limit.place.line},
          {"column", limit.limit.place.column}};
}

Json grown_json(const CheckResult& result, const JobResult& job, const CardResult& card) {
  Json rows = Json::array();
  for (const GrownModule& grown : card.grown) {
    Json row{{"name", grown.row.name},
             {"type", grown.row.type},
             {"presence", diff_presence_name(grown.row.presence)},
             {"layers", grown.layers},
             {"modules_below", grown.row.modules_below}};
    row.update(change_json(grown.row.total));
    row["categories"] = categories_json(*card.growth, grown.row.categories);
    const auto line = line_of(result, job, grown);
    row["file"] = line ? Json(line->file) : Json(nullptr);
    row["line"] = line ? Json(line->line) : Json(nullptr);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json growth_json(const CheckResult& result, const JobResult& job, const CardResult& card) {
  if (!card.growth) return nullptr;
  return {{"peak_reserved", change_json(card.growth->peak_reserved)},
          {"peak_allocated", change_json(card.growth->peak_allocated)},
          {"device", change_json(card.growth->device)},
          {"torch_before", card.growth->before.torch},
          {"modules", grown_json(result, job, card)}};
}

Json card_json(const CheckResult& result, const JobResult& job, const CardResult& card) {
  return {{"gpu", card.gpu_id},
          {"verdict", verdict_name(card.verdict)},
          {"ranks", card.deciding.ranks},
          {"rank", card.deciding.rank},
          {"device", card.deciding.device},
          {"torch", card.figures.torch},
          {"peak_reserved_bytes", card.figures.peak_reserved_bytes},
          {"peak_allocated_bytes", card.figures.peak_allocated_bytes},
          {"device_expected_bytes", card.figures.device_expected_bytes},
          {"device_request_bytes", card.figures.device_request_bytes},
          {"step_ns", optional_json(card.figures.step_ns)},
          {"limits", list_json(card.limits, limit_json)},
          {"growth", growth_json(result, job, card)},
          {"notes", card.notes},
          {"run", card.run_line}};
}

Json job_json(const CheckResult& result, const JobResult& job) {
  Json error;
  if (job.problem)
    error = {{"code", job.problem->code}, {"message", job.problem->message}, {"where", job.problem->where}, {"to_do", job.problem->to_do}};
  return {
      {"name", job.job.name},       {"command", command_json(job.job.command)},
      {"capture", job.job.capture}, {"line", job.job.place.line},
      {"seconds", job.seconds},     {"error", std::move(error)},
      {"printed", job.printed},     {"cards", list_json(job.cards, [&](const CardResult& card) { return card_json(result, job, card); })}};
}

}  // namespace

std::string check_json(const CheckResult& result) {
  const Json out{{"schema_version", 1},
                 {"config", result.config},
                 {"baseline", result.baseline},
                 {"baseline_exists", result.baseline_exists},
                 {"baseline_written", result.baseline_written},
                 {"passed", result.limits(Outcome::passed)},
                 {"broken", result.limits(Outcome::broken)},
                 {"unknown", result.limits(Outcome::unknown)},
                 {"failed_jobs", result.failed_jobs()},
                 {"notes", result.notes},
                 {"jobs", list_json(result.jobs, [&](const JobResult& job) { return job_json(result, job); })}};
  return dump(out);
}

}  // namespace gpucast::check

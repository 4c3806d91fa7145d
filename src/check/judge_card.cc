#include "src/check/judge_card.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/ranks.h"
#include "gpucast/step_time.h"
#include "src/base/bytes.h"
#include "src/base/layer_names.h"
#include "src/breakdown/fail_above.h"
#include "src/check/user_lines.h"
#include "src/predict/analysis.h"
#include "src/report/diff_reports.h"
#include "src/report/text_writer.h"

namespace gpucast::check {
namespace {

constexpr size_t kMostGrown = 10;

JobRank job_rank(const Prediction& p, int64_t rank, int64_t device) {
  JobRank out{rank, device, std::max<int64_t>(1, p.world_size), false};
  if (p.ranks) out.has_more_devices = std::ranges::count(p.ranks->lines, rank, &RankLine::rank) > 1;
  return out;
}

// The most that a rank has, and this rank. It may be another one than the deciding rank, which the whole need decides.
std::pair<int64_t, JobRank> most_of(const Prediction& p, int64_t deciding_bytes, int64_t RankLine::*bytes) {
  std::pair<int64_t, JobRank> out{deciding_bytes, job_rank(p, p.rank, p.device_index)};
  if (!p.ranks) return out;
  for (const RankLine& line : p.ranks->lines)
    if (line.*bytes > out.first) out = {line.*bytes, job_rank(p, line.rank, line.device)};
  return out;
}

// Three figures: the host's share is measured, and a baseline should not change with each run.
int64_t rounded(double ns) {
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(std::max(1.0, ns))) - 2));
  return static_cast<int64_t>(std::llround(ns / unit) * std::llround(unit));
}

std::optional<int64_t> step_ns_of(const Job& job, const std::vector<std::shared_ptr<const Facts>>& ranks, const std::string& gpu) {
  StepTimeOptions options;
  options.gpus = {find_gpu(gpu)};
  options.machine = job.machine;
  try {
    for (size_t i = 1; i < ranks.size(); ++i)
      if (ranks[i]->trace.process.pid == ranks[0]->trace.process.pid)
        throw Error("a process uses several cards, and the step of such a process is not predicted", "", "leave out the limit step_time");
    return rounded(step_times(pointers_to(ranks), options).cards.front().step.expected_ns);
  } catch (const Error&) {
    if (job.limit(Figure::step_time) != nullptr) throw;
    return std::nullopt;  // not every job has an observed step, and no limit needs it
  }
}

LimitResult judge_fits(const Limit& limit, const Prediction& p) {
  const bool fits = fits_now(p.verdict) && !runs_out_in_time(p);
  LimitResult out{limit, fits ? Outcome::passed : Outcome::broken, {}, {}, {}, job_rank(p, p.rank, p.device_index)};
  out.now = format_mib(p.device.request_bytes);
  out.most = format_mib(p.gpu_total_bytes);
  out.sentence = p.verdict_reason;
  if (p.verdict == Verdict::tight) out.now += ", tight";
  if (p.verdict == Verdict::grows) out.now += ", grows";
  return out;
}

LimitResult judge_bytes(const Limit& limit, const std::pair<int64_t, JobRank>& most) {
  const auto& [bytes, rank] = most;
  LimitResult out{limit, bytes > limit.most_bytes ? Outcome::broken : Outcome::passed, format_mib(bytes), limit.text, {}, rank};
  const char* what = limit.figure == Figure::peak_reserved ? "Peak reserved" : "The device total (the memory to request)";
  out.sentence = fmt::format("{} is {}: {} the allowed {}", what, out.now, out.outcome == Outcome::broken ? "above" : "within", limit.text);
  return out;
}

LimitResult judge_step_time(const Limit& limit, double step_ns) {
  LimitResult out{limit, step_ns > limit.most_ns ? Outcome::broken : Outcome::passed, time_text(step_ns), limit.text, {}, std::nullopt};
  out.sentence =
      fmt::format("A step takes {}: {} the allowed {}", out.now, out.outcome == Outcome::broken ? "more than" : "within", limit.text);
  return out;
}

LimitResult judge_growth(const Limit& limit, const Prediction& p, Diff* growth) {
  LimitResult out{limit,
                  Outcome::unknown,
                  "no baseline",
                  limit.text,
                  "The baseline does not have this job on this card",
                  job_rank(p, p.rank, p.device_index)};
  if (growth == nullptr) return out;
  FailAbove bound = parse_fail_above(limit.text, growth->peak_reserved.before_bytes, "growth =");
  bound.exceeded = growth->peak_reserved.change_bytes() > bound.bytes;
  growth->fail_above = bound;
  out.outcome = bound.exceeded ? Outcome::broken : Outcome::passed;
  out.now = change_words(growth->peak_reserved);
  out.most = limit.text.ends_with('%') ? fmt::format("{} of {}", limit.text, format_mib(growth->peak_reserved.before_bytes)) : limit.text;
  out.sentence = diff_verdict(*growth);
  return out;
}

void add_bytes(const DiffBytes& more, DiffBytes* bytes) {
  bytes->before_bytes += more.before_bytes;
  bytes->after_bytes += more.after_bytes;
}

}  // namespace

std::vector<GrownModule> rows_of_layers(const std::vector<DiffRow>& rows, std::vector<const DiffRow*>* largest) {
  std::vector<GrownModule> out;
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const DiffRow& row : rows) {
    const auto add_row = [&] {
      out.push_back({row, 1, ""});
      largest->push_back(&row);
    };
    if (row.total.change_bytes() == 0) continue;
    if (row.presence != DiffPresence::both) {
      add_row();
      continue;
    }
    const auto [place, fresh] = places.try_emplace({without_layer(row.name), row.type}, out.size());
    if (fresh) {
      add_row();
      continue;
    }
    GrownModule& layers = out[place->second];
    ++layers.layers;
    layers.row.name = place->first.first;
    add_bytes(row.total, &layers.row.total);
    for (size_t c = 0; c < row.categories.size(); ++c) add_bytes(row.categories[c], &layers.row.categories[c]);
  }
  return out;
}

namespace {

std::vector<GrownModule> grown_modules(const Analysis& analysis, const Diff& growth) {
  std::vector<const DiffRow*> largest;
  const std::vector<GrownModule> all = rows_of_layers(growth.rows, &largest);
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].row.total.change_bytes() > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return all[a].row.total.change_bytes() > all[b].row.total.change_bytes(); });
  order.resize(std::min(order.size(), kMostGrown));
  std::vector<GrownModule> out;
  for (const size_t i : order) {
    out.push_back(all[i]);
    out.back().frame = user_line(analysis, *largest[i]);
  }
  return out;
}

std::set<std::string> names_in(const CardFigures* baseline) {
  std::set<std::string> out;
  if (baseline == nullptr) return out;
  for (const ModuleBytes& module : baseline->modules) out.insert(module.name);
  return out;
}

}  // namespace

std::vector<LimitResult> judge_limits(const Job& job, const Prediction& prediction, const CardFigures& figures, Diff* growth) {
  std::vector<LimitResult> out;
  for (const Limit& limit : job.limits) {
    if (limit.figure == Figure::fits) out.push_back(judge_fits(limit, prediction));
    if (limit.figure == Figure::peak_reserved)
      out.push_back(judge_bytes(limit, most_of(prediction, figures.peak_reserved_bytes, &RankLine::reserved_bytes)));
    if (limit.figure == Figure::device_total)
      out.push_back(judge_bytes(limit, most_of(prediction, figures.device_request_bytes, &RankLine::request_bytes)));
    if (limit.figure == Figure::step_time) out.push_back(judge_step_time(limit, static_cast<double>(figures.step_ns.value_or(0))));
    if (limit.figure == Figure::growth) out.push_back(judge_growth(limit, prediction, growth));
  }
  return out;
}

CardResult judge_card(const Job& job, const std::vector<std::shared_ptr<const Facts>>& ranks, const std::string& gpu,
                      const CardFigures* baseline) {
  Analysis analysis = judge_job(ranks, gpu, job.confidence);
  analysis.prediction.steps_total = job.steps_total;
  if (analysis.prediction.verdict == Verdict::none)
    throw Error(fmt::format("no verdict: {}", analysis.prediction.verdict_reason), job.capture, "let the script make an optimizer step");
  CardResult out;
  out.gpu_id = gpu;
  out.deciding = job_rank(analysis.prediction, analysis.prediction.rank, analysis.prediction.device_index);
  out.verdict = analysis.prediction.verdict;
  Breakdown memory = breakdown(analysis);
  // Of the run itself first: what a baseline would keep does not depend on an earlier one.
  Breakdown for_baseline = memory;
  fold_small_modules({}, &for_baseline);
  out.figures = figures_of(analysis, for_baseline, step_ns_of(job, ranks, gpu));
  if (baseline != nullptr) {
    fold_small_modules(names_in(baseline), &memory);
    DiffInput before = as_diff_input(*baseline, gpu, memory);
    before.prediction.captured_gpu_id = analysis.prediction.captured_gpu_id;  // both as a check captures for this card
    out.growth = diff(before, {"now", analysis.prediction, std::move(memory)}, Grouping::module);
    out.grown = grown_modules(analysis, *out.growth);
    out.notes = out.growth->notes;
  }
  out.limits = judge_limits(job, analysis.prediction, out.figures, out.growth ? &*out.growth : nullptr);
  return out;
}

}  // namespace gpucast::check

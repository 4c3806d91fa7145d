#include "src/search/plan_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "gpucast/error.h"
#include "gpucast/step_time.h"
#include "src/base/links.h"
#include "src/job/job_step.h"
#include "src/predict/analysis.h"
#include "src/search/run_problem.h"

namespace gpucast::search {
namespace {

// A rank of each stage of a pipeline, where stages are the outermost part of the ranks' numbers, as Megatron-LM and torchtitan have it.
std::vector<int64_t> ranks_of_stages(int64_t world, int64_t stages) {
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(std::min(stages, world)));
  for (int64_t stage = 0; stage < std::min(stages, world); ++stage) out.push_back(stage * (world / std::min(stages, world)));
  return out;
}

void fill_memory(const std::vector<std::shared_ptr<const Facts>>& ranks, const PlanRunsOptions& options, PlanFigures* out) {
  out->verdict = Verdict::fits;
  for (const auto& facts : ranks) {
    const Prediction prediction = judge(facts, options.gpu.id, options.confidence).prediction;
    out->peak_reserved_bytes = std::max(out->peak_reserved_bytes, prediction.peak_reserved.bytes);
    out->expected_bytes = std::max(out->expected_bytes, prediction.device.expected_bytes);
    if (prediction.verdict > out->verdict) out->verdict = prediction.verdict;
    if (prediction.verdict == Verdict::none) out->problem = prediction.verdict_reason;
  }
}

PlanFigures timed(PlanFigures figures, const StepTimes& times) {
  const CardTime& card = times.cards.front();
  figures.step = card.step;
  figures.samples = times.samples;
  figures.tokens = times.tokens;
  figures.replicas = figures.nodes = 1;
  figures.bubble_share = figures.exposed_share = 0;
  if (!card.job) return figures;
  const RankStep& busiest = card.job->captured[card.job->busiest];
  figures.samples = card.job->samples;
  figures.tokens = card.job->tokens;
  figures.replicas = card.job->replicas;
  figures.nodes = card.job->nodes;
  figures.notes = card.job->notes;
  figures.bubble_share = busiest.waiting_ns / busiest.step_ns;
  figures.exposed_share = busiest.exposed_ns / busiest.step_ns;
  return figures;
}

void set_failed(const std::string& problem, PlanFigures* figures) {
  figures->failed = true;
  figures->problem = problem;
}

}  // namespace

RunSpec PlanRuns::spec_of(const PlanChoice& choice, const std::vector<int64_t>& ranks) const {
  PlanCommand command = command_of(space_, choice);
  RunSpec out;
  out.command = std::move(command.words);
  out.environment = std::move(command.environment);
  out.gpu = options_.gpu.id;
  out.steps = options_.steps;
  const Machine& machine = options_.machine;
  const int64_t of_host = machine.cards_per_host > 0 ? machine.cards_per_host : machine.links.cards;
  if (of_host != kUsualNodeCards) out.gpus = of_host;
  out.world_size = choice.gpus;
  out.ranks = fmt::format("{}", fmt::join(ranks, ","));
  return out;
}

PlanAnswer PlanRuns::answer_of(const PlanRequest& request, const Run& run, std::vector<int64_t>* missing) const {
  PlanAnswer out;
  out.figures.runs = {run_line(run.spec)};
  out.also.resize(request.also.size());
  if (run.end == RunEnd::out_of_memory) {
    out.figures.verdict = Verdict::does_not_fit;
    return out;
  }
  if (run.end == RunEnd::failed) {
    set_failed(run_problem(run), &out.figures);
    return out;
  }
  const std::vector<std::shared_ptr<const Facts>> facts = facts_of(run);
  fill_memory(facts, options_, &out.figures);
  if (out.figures.verdict == Verdict::none) set_failed(out.figures.problem, &out.figures);
  if (out.figures.failed || out.figures.verdict == Verdict::does_not_fit) return out;
  const std::vector<const Facts*> ranks = pointers_to(facts);
  *missing = missing_stages(ranks);
  if (!missing->empty()) return out;
  StepTimeOptions options;
  options.gpus = {options_.gpu};
  options.machine = options_.machine;
  options.cpu_speed = options_.cpu_speed;
  options.constants_json = options_.constants_json;
  const StepTimes times = step_times(ranks, options);
  const PlanFigures memory = out.figures;
  out.figures = timed(memory, times);
  out.samples_of_replica = times.samples;
  out.tokens_of_replica = times.tokens;
  out.flops_of_rank = times.hardware_flops;
  for (size_t i = 0; i < request.also.size(); ++i) {
    options.ranks = request.also[i];
    try {
      out.also[i] = timed(memory, step_times(ranks, options));
    } catch (const Error&) {  // one replica, or groups that do not say where more would be
      break;
    }
  }
  return out;
}

std::vector<PlanAnswer> PlanRuns::ask(const std::vector<PlanRequest>& requests) {
  constexpr int kMostRounds = 16;
  std::vector<PlanAnswer> out(requests.size());
  std::vector<std::vector<int64_t>> ranks;
  std::vector<size_t> open;
  for (size_t i = 0; i < requests.size(); ++i) {
    const PlanChoice& choice = requests[i].choice;
    ranks.push_back(ranks_of_stages(choice.gpus, size_of(space_, choice, PlanRole::pipeline)));
    open.push_back(i);
  }
  for (int round = 0; round < kMostRounds && !open.empty(); ++round) {
    std::vector<RunSpec> specs;
    specs.reserve(open.size());
    for (const size_t i : open) specs.push_back(spec_of(requests[i].choice, ranks[i]));
    const std::vector<Run> runs = runs_.run(specs);
    std::vector<size_t> again;
    for (size_t i = 0; i < open.size(); ++i) {
      std::vector<int64_t> missing;
      PlanAnswer& answer = out[open[i]];
      try {
        answer = answer_of(requests[open[i]], runs[i], &missing);
      } catch (const Error& error) {
        set_failed(error.what(), &answer.figures);
        answer.figures.runs = {run_line(runs[i].spec)};
      }
      if (missing.empty()) continue;
      std::set<int64_t> all(ranks[open[i]].begin(), ranks[open[i]].end());
      all.insert(missing.begin(), missing.end());
      ranks[open[i]].assign(all.begin(), all.end());
      again.push_back(open[i]);
    }
    open = std::move(again);
  }
  for (const size_t i : open) set_failed("its ranks exchange messages with more and more others", &out[i].figures);
  return out;
}

}  // namespace gpucast::search

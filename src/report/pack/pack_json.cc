// A plan for scripts.

#include <fmt/core.h>

#include <array>
#include <string>

#include "src/base/json.h"
#include "src/pack/policy.h"
#include "src/report/pack/pack_report.h"

namespace gpucast {
namespace {

Json slowdown_json(const pack::Slowdown& slowdown) {
  return {{"low", slowdown.low}, {"expected", slowdown.expected}, {"high", slowdown.high}};
}

// With the names of a job table's columns, so that a plan's jobs can be packed again.
Json figures_json(const pack::Figures& figures) {
  Json out = {{"step_ns", figures.step_ns},
              {"memory_bytes", figures.request_bytes},
              {"occupancy", figures.occupancy},
              {"sm_active", figures.sm_active},
              {"nvml_utilization", figures.nvml_utilization}};
  if (figures.mix)
    out.update({{"compute", figures.mix->compute},
                {"tensor", figures.mix->tensor},
                {"dram", figures.mix->dram},
                {"l2", figures.mix->l2},
                {"pcie", figures.mix->pcie},
                {"launch", figures.mix->launch},
                {"kernels", figures.mix->kernels},
                {"waves", figures.mix->waves}});
  return out;
}

Json job_json(const PackReport& report, size_t index) {
  const pack::Job& job = report.jobs[index];
  const pack::Placement& placed = report.plan.jobs[index];
  Json cards = Json::array(), neighbours = Json::array();
  for (const uint32_t card : placed.cards) cards.push_back(report.cluster.cards[card].id);
  for (const uint32_t other : placed.neighbours) neighbours.push_back(report.jobs[other].name);
  Json contended = Json::array();
  if (!placed.neighbours.empty() && placed.mig_profile < 0) {
    const Gpu& gpu = report.cluster.types[report.cluster.cards[placed.cards.front()].type];
    const pack::KernelMix own = kernel_mix_of(*job.figures_on(gpu.id));
    for (const uint32_t other : placed.neighbours) {
      const std::array pair = {own, kernel_mix_of(*report.jobs[other].figures_on(gpu.id))};
      contended.push_back(pack::contended_name(pack::contention(pair, gpu, report.plan.mode, report.constants).part));
    }
  }
  Json out = {{"name", job.name},
              {"outcome", pack::outcome_name(placed.outcome)},
              {"reason", pack::reason_name(placed.reason)},
              {"cards", cards},
              {"neighbours", neighbours},
              {"contended", contended},
              {"arrival_ns", job.arrival_ns},
              {"start_ns", placed.start_ns},
              {"end_ns", placed.end_ns},
              {"share", placed.share},
              {"request_bytes", placed.request_bytes},
              {"slowdown", placed.slowdown},
              {"gain", placed.gain},
              {"out_of_memory_runs", placed.out_of_memory_runs}};
  Json on = Json::object();
  for (const Gpu& gpu : report.cluster.types)
    if (const pack::Figures* figures = job.figures_on(gpu.id)) on[gpu.id] = figures_json(*figures);
  out["steps"] = job.steps;
  if (!job.command.empty()) out["command"] = job.command;
  out["on"] = std::move(on);
  if (placed.mig_profile >= 0) {
    const Gpu& gpu = report.cluster.types[report.cluster.cards[placed.cards.front()].type];
    out["mig_profile"] = pack::mig_profiles(gpu)[static_cast<size_t>(placed.mig_profile)].name;
  }
  return out;
}

Json together_json(const PackReport& report) {
  const Together& together = *report.together;
  Json jobs = Json::array();
  for (size_t i = 0; i < together.slowdowns.size(); ++i) {
    const pack::Figures* figures = report.jobs[i].figures_on(report.cluster.types.front().id);
    jobs.push_back({{"name", report.jobs[i].name},
                    {"request_bytes", figures->request_bytes},
                    {"alone_step_ns", figures->step_ns},
                    {"step_ns", figures->step_ns * together.slowdowns[i].expected},
                    {"slowdown", slowdown_json(together.slowdowns[i])}});
  }
  Json pairs = Json::array();
  for (const ContendingPair& pair : together.pairs) {
    Json names = Json::array();
    for (const size_t job : {pair.one, pair.other}) names.push_back(report.jobs[job].name);
    pairs.push_back({{"jobs", names}, {"contended", pack::contended_name(pair.contention.part)}, {"used", pair.contention.used}});
  }
  return {{"fits", together.fits},
          {"request_bytes", together.request_bytes},
          {"capacity_bytes", together.capacity_bytes},
          {"jobs", jobs},
          {"pairs", pairs}};
}

Json ways_json(const PackReport& report) {
  Json out = Json::array();
  for (const pack::WayToShare& way : report.ways) {
    Json jobs = Json::array();
    for (size_t i = 0; i < way.slowdowns.size(); ++i) {
      Json job = {{"name", report.jobs[i].name}, {"slowdown", slowdown_json(way.slowdowns[i])}};
      if (!way.limits.empty()) job["limit"] = way.limits[i];
      jobs.push_back(job);
    }
    Json one = {{"mode", pack::sharing_mode_name(way.mode)}, {"progress", way.progress}, {"jobs", jobs}};
    if (!way.problem.empty()) one["problem"] = way.problem;
    out.push_back(one);
  }
  return out;
}

Json best_json(const pack::BestPlan& best) {
  Json tried = Json::array();
  for (const pack::TriedPlan& plan : best.tried)
    tried.push_back({{"policy", plan.policy},
                     {"order", pack::job_order_name(plan.order)},
                     {"value", plan.value},
                     {"out_of_memory_runs", plan.out_of_memory_runs}});
  return {{"goal", pack::goal_name(best.goal)},
          {"unit", best.goal == pack::Goal::cost ? "hours" : "ns"},
          {"value", pack::goal_value(best.goal, best.plan)},
          {"lower_bound", best.lower_bound},
          {"plans", best.plans},
          {"tried", tried}};
}

Json summary_json(const PackReport& report) {
  const pack::Plan& plan = report.plan;
  Json cluster = Json::array(), cards = Json::array();
  for (size_t t = 0; t < report.cluster.types.size(); ++t) {
    int64_t count = 0;
    for (const pack::Card& card : report.cluster.cards) count += card.type == t ? 1 : 0;
    cluster.push_back({{"gpu", report.cluster.types[t].id}, {"name", report.cluster.types[t].name}, {"count", count}});
  }
  for (size_t c = 0; c < plan.cards.size(); ++c) {
    const pack::CardUse& use = plan.cards[c];
    cards.push_back({{"id", report.cluster.cards[c].id},
                     {"busy", use.busy},
                     {"nvml", use.nvml},
                     {"occupancy", use.occupancy},
                     {"most_bytes", use.most_bytes},
                     {"most_jobs", use.most_jobs},
                     {"jobs", use.jobs}});
  }
  Json out = {{"schema_version", 1},
              {"policy", plan.policy},
              {"rule", pack::find_policy(plan.policy).rule},
              {"mode", pack::sharing_mode_name(plan.mode)},
              {"order", pack::job_order_name(plan.order)},
              {"fair", plan.fair},
              {"seed", plan.seed},
              {"cluster", cluster},
              {"makespan_ns", plan.makespan_ns},
              {"first_arrival_ns", plan.first_arrival_ns},
              {"jct", {{"mean_ns", plan.mean_jct_ns}, {"p50_ns", plan.p50_jct_ns}, {"p99_ns", plan.p99_jct_ns}}},
              {"queue", {{"mean_ns", plan.mean_queue_ns}, {"p99_ns", plan.p99_queue_ns}}},
              {"mean_slowdown", plan.mean_slowdown},
              {"utilization", plan.utilization},
              {"nvml", plan.nvml},
              {"occupancy", plan.occupancy},
              {"gpu_hours", plan.gpu_hours},
              {"job_gpu_hours", plan.job_gpu_hours},
              {"finished", plan.finished},
              {"never_fits", plan.never_fits},
              {"out_of_memory", {{"runs", plan.out_of_memory_runs}, {"jobs", plan.out_of_memory_jobs}}},
              {"events", plan.events},
              {"cards", cards},
              {"notes", report.notes}};
  if (report.best) out["best"] = best_json(*report.best);
  if (report.together) out["together"] = together_json(report);
  if (!report.ways.empty()) out["ways"] = ways_json(report);
  return out;
}

}  // namespace

void write_pack_json(const PackReport& report, std::FILE* out) {
  std::string summary = summary_json(report).dump();
  summary.pop_back();
  fmt::print(out, "{},\n\"jobs\":[", summary);
  for (size_t i = 0; i < report.jobs.size(); ++i) fmt::print(out, "{}\n{}", i == 0 ? "" : ",", job_json(report, i).dump());
  fmt::print(out, "\n]}}\n");
}

}  // namespace gpucast

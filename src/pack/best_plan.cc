#include "src/pack/best_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "gpucast/error.h"
#include "src/pack/policy.h"

namespace gpucast::pack {
namespace {

constexpr size_t kParts = 6;

// The parts of a card that a job uses in a step alone; all jobs' sums are at most `card_has`.
using Parts = std::array<double, kParts>;

Parts parts_used(const Figures& figures, const Gpu& gpu, SharingMode mode, const PackConstants& constants) {
  const KernelMix mix = kernel_mix_of(figures);
  Parts out = {mix.compute, mix.tensor, mix.dram, mix.l2, mix.pcie, 0};
  if (mode == SharingMode::timeslice) {
    out = {};
    if (gpu.compute_major >= 7) out[5] = mix.busy * (mix.kernels > 0 ? 1 : constants.slices_since_volta.nvml_busy);
  } else if (mode == SharingMode::mps) {
    if (gpu.compute_major >= 8) out[5] = mix.busy / std::max(1.0, constants.mps_since_ampere.together);
  } else {
    out[5] = mode == SharingMode::mig ? std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor}) : mix.warps;
  }
  return out;
}

// What a job needs at least: the time alone on its fastest card, and the time of the cards' parts, on the cards where that is least.
struct Need {
  double alone_ns = 0;
  Parts card_ns = {};
};

std::optional<Need> need_of(const Job& job, const Cluster& cluster, const PackConstants& constants) {
  std::optional<Need> out;
  for (const Gpu& gpu : cluster.types) {
    const Figures* figures = job.figures_on(gpu.id);
    if (!figures) continue;
    const double alone_ns = static_cast<double>(job.steps) * figures->step_ns;
    Need here = {alone_ns, parts_used(*figures, gpu, cluster.mode, constants)};
    for (double& part : here.card_ns) part *= alone_ns * job.cards;
    if (!out) {
      out = here;
      continue;
    }
    out->alone_ns = std::min(out->alone_ns, here.alone_ns);
    for (size_t i = 0; i < kParts; ++i) out->card_ns[i] = std::min(out->card_ns[i], here.card_ns[i]);
  }
  return out;
}

// If jobs end one after another, the one with the least need first, the k-th end is not before the sum of the k least needs.
double mean_end_ns(const std::vector<Need>& needs, size_t part, double cards) {
  std::vector<double> work, alone;
  work.reserve(needs.size());
  alone.reserve(needs.size());
  for (const Need& need : needs) {
    work.push_back(need.card_ns[part] / cards);
    alone.push_back(need.alone_ns);
  }
  std::sort(work.begin(), work.end());
  std::sort(alone.begin(), alone.end());
  double done = 0, sum = 0;
  for (size_t k = 0; k < work.size(); ++k) {
    done += work[k];
    sum += std::max(done, alone[k]);
  }
  return sum / static_cast<double>(work.size());
}

}  // namespace

const char* goal_name(Goal goal) {
  switch (goal) {
    case Goal::makespan:
      return "makespan";
    case Goal::mean:
      return "mean";
    case Goal::cost:
      return "cost";
    case Goal::count_:
      break;
  }
  return "";
}

Goal find_goal(std::string_view name) {
  for (int g = 0; g < static_cast<int>(Goal::count_); ++g)
    if (name == goal_name(static_cast<Goal>(g))) return static_cast<Goal>(g);
  throw Error("no such goal", std::string(name), "makespan, mean or cost");
}

double goal_value(Goal goal, const Plan& plan) {
  if (goal == Goal::makespan) return static_cast<double>(plan.makespan_ns);
  return goal == Goal::mean ? plan.mean_jct_ns : plan.gpu_hours;
}

double lower_bound(std::span<const Job> jobs, const Cluster& cluster, const PackConstants& constants, Goal goal) {
  std::vector<Need> needs;
  needs.reserve(jobs.size());
  const auto cards = static_cast<double>(cluster.cards.size());
  double first_ns = 0, arrivals_ns = 0, last_ns = 0, alone_ns = 0;
  Parts all = {};
  for (const Job& job : jobs) {
    const std::optional<Need> need = need_of(job, cluster, constants);
    if (!need) continue;
    const auto arrival_ns = static_cast<double>(job.arrival_ns);
    first_ns = needs.empty() ? arrival_ns : std::min(first_ns, arrival_ns);
    last_ns = std::max(last_ns, arrival_ns + need->alone_ns);
    arrivals_ns += arrival_ns;
    alone_ns += need->alone_ns;
    for (size_t i = 0; i < kParts; ++i) all[i] += need->card_ns[i];
    needs.push_back(*need);
  }
  if (needs.empty()) return 0;
  const double most_ns = *std::max_element(all.begin(), all.end());
  if (goal == Goal::makespan) return std::max(last_ns - first_ns, most_ns / cards);
  if (goal == Goal::cost) return most_ns / kHourNs;
  const auto count = static_cast<double>(needs.size());
  double out = alone_ns / count;
  for (size_t part = 0; part < kParts; ++part) out = std::max(out, mean_end_ns(needs, part, cards) + first_ns - arrivals_ns / count);
  return out;
}

BestPlan best_plan(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options, Goal goal) {
  BestPlan out;
  out.goal = goal;
  const auto rank = [&](const Plan& plan) { return std::tuple(-plan.finished, plan.out_of_memory_runs, goal_value(goal, plan)); };
  for (const Policy* policy : policies())
    for (int o = 0; o < static_cast<int>(JobOrder::count_); ++o) {
      PackOptions tried = options;
      tried.policy = policy;
      tried.order = static_cast<JobOrder>(o);
      Plan plan = simulate(jobs, cluster, tried);
      out.tried.push_back({policy->name, tried.order, goal_value(goal, plan), plan.out_of_memory_runs});
      if (out.tried.size() == 1 || rank(plan) < rank(out.plan)) out.plan = std::move(plan);
    }
  out.lower_bound = lower_bound(jobs, cluster, options.constants, goal);
  return out;
}

}  // namespace gpucast::pack

#include "src/pack/best_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/pack/policy.h"

namespace gpucast::pack {
namespace {

constexpr size_t kParts = 6;
constexpr int64_t kFewestSearchedPlans = 20, kMostSearchedPlans = 1000;

// The parts of a card that a job uses in a step alone. At any moment the jobs of a card together use at most 1 of each part.
using Parts = std::array<double, kParts>;

// Time slices: the part of a card's time that a job uses, if all jobs of a card may use 1. Two jobs or more together get only `together` of
// the card, but they get more while a job that needs most of the card has a small neighbour. That surplus is largest where both just get
// what they ask for; it counts for the larger job as if it had such a neighbour all the time.
double part_of_slices(double busy, double together) {
  if (together >= 1) return busy / together;
  const double lost = (1 - together) / (together / 2);  // of the card, for each unit that all jobs but the largest ask for
  const double with_small_neighbour = busy + (1 - busy) / (1 + lost);
  return (busy - std::max(0.0, with_small_neighbour - together)) / together;
}

Parts parts_used(const Figures& figures, const Gpu& gpu, SharingMode mode, const PackConstants& constants) {
  const KernelMix mix = kernel_mix_of(figures);
  Parts out = {mix.compute, mix.tensor, mix.dram, mix.l2, mix.pcie, 0};
  if (mode == SharingMode::timeslice) {
    out = {};
    const SharedTimeConstants& slices = constants.slices_since_volta;
    if (gpu.compute_major >= 7) out[5] = part_of_slices(mix.busy * (mix.kernels > 0 ? 1 : slices.nvml_busy), slices.together);
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

// How many plans the search makes for each policy; 0: all jobs arrive at different times, or there are too many jobs.
int64_t searched_plans(std::span<const Job> jobs, int64_t searched_jobs) {
  std::set<int64_t> arrivals_ns;
  for (const Job& job : jobs) arrivals_ns.insert(job.arrival_ns);
  if (arrivals_ns.size() == jobs.size()) return 0;
  const int64_t plans = searched_jobs / static_cast<int64_t>(jobs.size());
  return plans < kFewestSearchedPlans ? 0 : std::min(plans, kMostSearchedPlans);
}

// Swaps two jobs, or moves one job to another place.
void change_order(std::vector<uint32_t>* order, std::mt19937_64* random) {
  const auto begin = order->begin();
  const auto a = static_cast<std::ptrdiff_t>((*random)() % order->size()), b = static_cast<std::ptrdiff_t>((*random)() % order->size());
  if ((*random)() % 2 == 0)
    std::iter_swap(begin + a, begin + b);
  else if (a < b)
    std::rotate(begin + a, begin + a + 1, begin + b + 1);
  else
    std::rotate(begin + b, begin + a, begin + a + 1);
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

BestPlan best_plan(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options, Goal goal, int64_t searched_jobs) {
  BestPlan out;
  out.goal = goal;
  const auto rank = [&](const Plan& plan) { return std::tuple(-plan.finished, plan.out_of_memory_runs, goal_value(goal, plan)); };
  const auto make = [&](const PackOptions& tried) {
    Plan plan = simulate(jobs, cluster, tried);
    if (out.plans++ == 0 || rank(plan) < rank(out.plan)) out.plan = plan;
    return plan;
  };
  const auto note = [&](const Plan& plan) {
    out.tried.push_back({plan.policy, plan.order, goal_value(goal, plan), plan.out_of_memory_runs});
  };
  const int64_t searched = searched_plans(jobs, searched_jobs);
  for (const Policy* policy : policies()) {
    PackOptions tried = options;
    tried.policy = policy;
    std::optional<Plan> best;
    for (const JobOrder order : {JobOrder::arrival, JobOrder::longest_first, JobOrder::shortest_first}) {
      tried.order = order;
      Plan plan = make(tried);
      note(plan);
      if (!best || rank(plan) < rank(*best)) best = std::move(plan);
    }
    if (searched == 0) continue;
    std::vector<uint32_t> order = order_of_jobs(jobs, cluster, best->order);
    tried.order = JobOrder::searched;
    tried.turns.resize(jobs.size());
    best.reset();
    std::mt19937_64 random(options.seed);
    for (int64_t i = 0; i < searched; ++i) {
      std::vector<uint32_t> changed = order;
      if (i > 0) change_order(&changed, &random);
      for (size_t turn = 0; turn < changed.size(); ++turn) tried.turns[changed[turn]] = static_cast<uint32_t>(turn);
      Plan plan = make(tried);
      if (best && rank(*best) < rank(plan)) continue;
      order = std::move(changed);
      best = std::move(plan);
    }
    note(*best);
  }
  out.lower_bound = lower_bound(jobs, cluster, options.constants, goal);
  return out;
}

}  // namespace gpucast::pack

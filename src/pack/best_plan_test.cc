#include "src/pack/best_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/base/bytes.h"
#include "src/pack/contention.h"
#include "src/pack/policy.h"

namespace gpucast::pack {
namespace {

Job queued_job(double busy, double seconds, double arrival_s = 0) {
  Job out;
  out.name = "job";
  out.steps = 100;
  out.arrival_ns = static_cast<int64_t>(arrival_s * 1e9);
  out.figures = {seconds * 1e7, kGiB, 0.3, busy, busy, std::nullopt};
  out.figures.mix = KernelMix{.busy = busy, .sm_active = busy, .warps = 0.3 * busy, .kernels = 100, .waves = 200, .step_ns = seconds * 1e7};
  return out;
}

std::vector<Job> random_queue(uint64_t seed, bool all_at_once) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0.05, 1);
  std::vector<Job> out;
  for (size_t i = 0; i < 12; ++i) {
    out.push_back(queued_job(share(random), 20 * share(random), all_at_once ? 0 : 30 * share(random)));
    out.back().figures.mix->dram = share(random) * out.back().figures.mix->busy;
    if (i % 5 == 4) out.back().cards = 2;
  }
  return out;
}

TEST(BestPlan, NoPlanIsBelowTheLowerBound) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const char* cards : {"2xh200", "2xp40", "2xv100-16", "2xa100-80,2xh100-80"})
      for (const SharingMode mode : {SharingMode::timeslice, SharingMode::mps, SharingMode::mps_limits}) {
        const std::vector<Job> jobs = random_queue(seed, seed % 2 == 0);
        const Cluster cluster = parse_cluster(cards, mode);
        for (const Policy* policy : policies()) {
          PackOptions options;
          options.policy = policy;
          const Plan plan = simulate(jobs, cluster, options);
          for (const Goal goal : {Goal::makespan, Goal::mean, Goal::cost}) {
            const double bound = lower_bound(jobs, cluster, options.constants, goal);
            EXPECT_LE(bound, goal_value(goal, plan) * (1 + 1e-9))
                << seed << cards << sharing_mode_name(mode) << policy->name << goal_name(goal);
          }
        }
      }
}

TEST(BestPlan, IsAtMostEveryPolicys) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const std::vector<Job> jobs = random_queue(seed, true);
    const Cluster cluster = parse_cluster("2xh200", SharingMode::mps);
    for (const Goal goal : {Goal::makespan, Goal::mean, Goal::cost}) {
      const BestPlan best = best_plan(jobs, cluster, {}, goal, 400);
      ASSERT_EQ(best.tried.size(), policies().size() * 4);
      for (const TriedPlan& tried : best.tried) EXPECT_LE(goal_value(goal, best.plan), tried.value);
      EXPECT_LE(best.lower_bound, goal_value(goal, best.plan));
    }
  }
}

TEST(BestPlan, LongJobsFirstEndEarlier) {
  const std::vector<Job> jobs = {queued_job(1, 10), queued_job(1, 10), queued_job(1, 20)};
  const Cluster cluster = parse_cluster("2xp40", SharingMode::mps);
  PackOptions options;
  options.policy = &kSlotPolicy;
  EXPECT_EQ(simulate(jobs, cluster, options).makespan_ns, 30'000'000'000);
  options.order = JobOrder::longest_first;
  const Plan plan = simulate(jobs, cluster, options);
  EXPECT_EQ(plan.makespan_ns, 20'000'000'000);
  EXPECT_EQ(plan.jobs[2].start_ns, 0) << "results stay in the order of the input";
  EXPECT_DOUBLE_EQ(lower_bound(jobs, cluster, options.constants, Goal::makespan), 20e9) << "the longest job";
  EXPECT_DOUBLE_EQ(lower_bound(jobs, parse_cluster("h200", SharingMode::timeslice), options.constants, Goal::makespan), 40e9);
  // On one card that runs one job at a time: ends at 10, 20 and 40 s.
  EXPECT_DOUBLE_EQ(lower_bound(jobs, parse_cluster("h200", SharingMode::timeslice), options.constants, Goal::mean), 70e9 / 3);
}

// One job at a time on each card: 3 + 3 and 2 + 2 + 2 seconds. In each of the three orders, the last job ends after 7 s.
TEST(BestPlan, SearchesForTheOrder) {
  std::vector<Job> jobs;
  for (const double seconds : {3, 3, 2, 2, 2}) jobs.push_back(queued_job(1, seconds));
  const BestPlan best = best_plan(jobs, parse_cluster("2xh200", SharingMode::timeslice), {}, Goal::makespan, 2000);
  EXPECT_NEAR(static_cast<double>(best.plan.makespan_ns), 6e9, 1e6);
  EXPECT_DOUBLE_EQ(best.lower_bound, 6e9);
  for (const TriedPlan& tried : best.tried) {
    if (tried.policy == "slot") {
      EXPECT_NEAR(tried.value, tried.order == JobOrder::searched ? 6e9 : 7e9, 1e6);
    }
  }
  EXPECT_EQ(best.plans, static_cast<int64_t>(policies().size()) * (3 + 2000 / 5));
}

TEST(BestPlan, SearchesTheSameOrdersAgain) {
  const std::vector<Job> jobs = random_queue(3, true);
  const Cluster cluster = parse_cluster("2xh200", SharingMode::timeslice);
  const BestPlan once = best_plan(jobs, cluster, {}, Goal::makespan, 600), again = best_plan(jobs, cluster, {}, Goal::makespan, 600);
  EXPECT_EQ(once.plan.makespan_ns, again.plan.makespan_ns);
  EXPECT_EQ(once.plans, again.plans);
}

TEST(BestPlan, DoesNotSearchIfArrivalsDecide) {
  const BestPlan best = best_plan(random_queue(3, false), parse_cluster("2xh200", SharingMode::timeslice), {}, Goal::makespan);
  EXPECT_EQ(best.plans, static_cast<int64_t>(policies().size()) * 3);
}

// In time slices, two jobs that need 0.46 of the card fill it: sharing loses 8 %.
TEST(BestPlan, TheBoundCountsWhatSharingLoses) {
  const Cluster cluster = parse_cluster("h200", SharingMode::timeslice);
  const std::vector<Job> halves(4, queued_job(0.46, 10));
  EXPECT_NEAR(lower_bound(halves, cluster, pack_constants(), Goal::makespan), 20e9, 1);
  EXPECT_NEAR(static_cast<double>(best_plan(halves, cluster, {}, Goal::makespan, 400).plan.makespan_ns), 20e9, 1e6);
  // A job that needs 0.9 of the card, next to one that fits in what is left of it: no loss, and the bound is the longest job.
  const std::vector<Job> large_and_small = {queued_job(0.9, 10), queued_job(0.085, 10)};
  EXPECT_NEAR(lower_bound(large_and_small, cluster, pack_constants(), Goal::makespan), 10e9, 1);
  EXPECT_NEAR(static_cast<double>(best_plan(large_and_small, cluster, {}, Goal::makespan, 400).plan.makespan_ns), 10e9, 1e6);
}

// A job that runs out of memory costs a real user more than its time.
TEST(BestPlan, PrefersPlansWithoutRunsOutOfMemory) {
  std::vector<Job> jobs = {queued_job(0.3, 10), queued_job(0.3, 10), queued_job(0.3, 10)};
  for (Job& job : jobs) job.figures.request_bytes = 100 * kGiB;
  const BestPlan best = best_plan(jobs, parse_cluster("h200", SharingMode::mps), {}, Goal::makespan, 400);
  EXPECT_EQ(best.plan.out_of_memory_runs, 0);
  EXPECT_TRUE(std::any_of(best.tried.begin(), best.tried.end(), [](const TriedPlan& plan) { return plan.out_of_memory_runs > 0; }));
}

TEST(BestPlan, NamesItsGoals) {
  EXPECT_EQ(find_goal("cost"), Goal::cost);
  EXPECT_THROW(find_goal("time"), Error);
}

TEST(Contention, NamesThePartThatIsAskedForMost) {
  const Gpu& gpu = find_gpu("h200");
  const auto part = [&](const KernelMix& one, const KernelMix& other, SharingMode mode = SharingMode::mps) {
    return std::string(contended_name(contention(std::vector{one, other}, gpu, mode, pack_constants()).part));
  };
  const KernelMix full = {.busy = 1, .sm_active = 0.9, .dram = 0.3, .kernels = 100, .step_ns = 1e8};
  const KernelMix memory = {.busy = 1, .sm_active = 0.4, .dram = 0.8, .kernels = 100, .step_ns = 1e8};
  const KernelMix small = {.busy = 0.2, .sm_active = 0.1, .kernels = 100, .step_ns = 1e8};
  const KernelMix copies = {.busy = 0.9, .sm_active = 0.1, .pcie = 0.8, .kernels = 100, .step_ns = 1e8};
  EXPECT_EQ(part(full, full), "multiprocessors");
  EXPECT_EQ(part(memory, memory), "bandwidth");
  EXPECT_EQ(part(memory, memory, SharingMode::timeslice), "multiprocessors") << "one job at a time has all of them";
  EXPECT_EQ(part(small, small), "nothing");
  EXPECT_EQ(part(copies, copies), "host");
  EXPECT_DOUBLE_EQ(contention(std::vector{full, memory}, gpu, SharingMode::mps, pack_constants()).used, 1.3);
}

}  // namespace
}  // namespace gpucast::pack

// The best of the plans that the policies make, with jobs in three orders and in orders found by search, and a bound that no plan passes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/pack/cluster.h"
#include "src/pack/job.h"
#include "src/pack/plan.h"
#include "src/pack/simulate.h"

namespace gpucast::pack {

enum class Goal : uint8_t {
  makespan,  // from the first arrival to the last end
  mean,      // of the times from arrival to end
  cost,      // hours of cards with a job
  count_
};
const char* goal_name(Goal goal);                // as on the command line
Goal find_goal(std::string_view name);           // throws Error
double goal_value(Goal goal, const Plan& plan);  // nanoseconds; cost: hours

struct TriedPlan {
  std::string policy;
  JobOrder order = JobOrder::arrival;
  double value = 0;
  int64_t out_of_memory_runs = 0;
};

struct BestPlan {
  Plan plan;
  Goal goal = Goal::makespan;
  double lower_bound = 0;        // in the unit of goal_value()
  std::vector<TriedPlan> tried;  // JobOrder::searched: the best of a policy's search
  int64_t plans = 0;             // all that were made
};

// Tries each policy with each order. If jobs arrive at the same time, it then changes the best order of each policy, job by job, and keeps
// what is not worse; the number of these plans depends on the number of jobs, not on time, so the same jobs give the same plan. The plan
// with the most finished jobs is best, then the one without runs out of memory, then the one with the least value. `options`: without
// policy and order.
// `searched_jobs`: the number of jobs that the search of each policy places, over all its plans.
inline constexpr int64_t kSearchedJobs = 20'000;
BestPlan best_plan(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options, Goal goal,
                   int64_t searched_jobs = kSearchedJobs);

// No plan of these jobs has a lower value: no job is faster than alone, and all jobs together do not use more than the cards have.
double lower_bound(std::span<const Job> jobs, const Cluster& cluster, const PackConstants& constants, Goal goal);

}  // namespace gpucast::pack

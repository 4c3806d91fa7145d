// Runs jobs on a cluster, event by event: arrivals, ends, and runs that run out of memory (docs/explanation/packing.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/pack/cluster.h"
#include "src/pack/constants.h"
#include "src/pack/job.h"
#include "src/pack/plan.h"
#include "src/pack/policy.h"

namespace gpucast::pack {

struct PackOptions {
  const Policy* policy = &kGpucastPolicy;
  bool fair = false;  // other jobs overtake the oldest waiting job at most kMostOvertakes times
  JobOrder order = JobOrder::arrival;
  std::vector<uint32_t> turns;  // JobOrder::searched: for each job, its place among the jobs that arrive at the same time
  uint64_t seed = 0;            // where the search among many shared cards begins
  bool neighbours = true;       // fill Placement::neighbours
  PackConstants constants = pack_constants();
};

// All jobs, as indices: by arrival, and in this order if they arrive at the same time. `turns` as in PackOptions.
std::vector<uint32_t> order_of_jobs(std::span<const Job> jobs, const Cluster& cluster, JobOrder order,
                                    std::span<const uint32_t> turns = {});

// The same jobs, cluster and options give the same plan. The time is about n log n for n events. Jobs must pass check_job(). Throws Error:
// the plan would last longer than a century.
Plan simulate(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options);

}  // namespace gpucast::pack

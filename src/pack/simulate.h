// Runs jobs on a cluster, event by event: an arrival, an end, a run that is lost out of memory (docs/explanation/packing.md).
#pragma once

#include <cstdint>
#include <span>

#include "src/pack/cluster.h"
#include "src/pack/constants.h"
#include "src/pack/job.h"
#include "src/pack/plan.h"
#include "src/pack/policy.h"

namespace gpucast::pack {

struct PackOptions {
  const Policy* policy = &kGpucastPolicy;
  bool fair = false;       // the oldest waiting job is overtaken kMostOvertakes times at most
  uint64_t seed = 0;       // where a search among many cards that could be shared begins
  bool neighbours = true;  // fill Placement::neighbours
  PackConstants constants = pack_constants();
};

// Same jobs, cluster and options: same plan. About n log n for n events. Jobs must pass check_job(). Throws Error: the plan would last
// longer than a century.
Plan simulate(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options);

}  // namespace gpucast::pack

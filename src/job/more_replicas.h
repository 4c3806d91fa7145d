// A job with other numbers of replicas of its model.
#pragma once

#include <cstdint>

#include "src/job/job_ranks.h"

namespace gpucast {

// Makes the job one of `ranks` ranks: each replica keeps its stages and shards, and the groups that connect the replicas have more ranks or
// fewer. What each rank computes stays as captured.
// Throws Error: `ranks` is no multiple of a replica's ranks, or the groups do not say which ranks more replicas would have.
void set_replicas(int64_t ranks, JobRanks* job);

}  // namespace gpucast

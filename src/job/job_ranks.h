// The captured ranks of a job: what is the same on all cards and machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/schedule/step_constants.h"
#include "src/work/step_operations.h"

namespace gpucast {

struct JobRanks {
  std::vector<StepOperations> steps;  // by rank; ranks of one program have the host's times of the fastest
  // By rank. Ranks of a role have the same work in different replicas of the model, or in different parts of a split layer.
  std::vector<size_t> roles;
  int64_t replicas = 1;  // of the model
};

// Throws Error: the captures are not of one job.
JobRanks job_ranks(std::vector<StepOperations> steps, const StepConstants& constants);

}  // namespace gpucast

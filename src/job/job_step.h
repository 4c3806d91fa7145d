// Plays the captured ranks of a job on one machine.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/job_step.h"
#include "gpucast/machine.h"
#include "src/job/job_ranks.h"
#include "src/schedule/step_constants.h"
#include "src/time/card_rates.h"
#include "src/work/step_operations.h"

namespace gpucast {

struct Facts;  // src/predict/facts.h

struct JobOptions {
  double cpu_speed = 1;  // as StepTimeOptions
  bool slices = false;
};

// The collectives of `job` are put on the nodes of `machine`, whose links `rates` must have. The result's step has the interval of
// its communication alone.
// Throws Error: ranks that do not fit together (src/ranks), a job that does not fit on the machine.
JobStep job_step(JobRanks* job, const Machine& machine, const CardRates& rates, const StepConstants& constants, const JobOptions& options);

// How many of the job's ranks lie on each of the machine's nodes. Throws Error if the machine has too few cards and no network.
int64_t ranks_of_node(const StepOperations& step, const Machine& machine);

// Other stages of a pipeline: ranks that send these messages or get them, but were not captured. Empty without an observed step.
std::vector<int64_t> missing_stages(const std::vector<const Facts*>& ranks);

}  // namespace gpucast

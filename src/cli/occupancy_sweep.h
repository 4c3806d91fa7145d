// `gpucast occupancy --sweep NAME=A,B,C -- COMMAND`: runs the command once for each value, as one batch.
#pragma once

#include <optional>
#include <string>

#include "gpucast/job_occupancy.h"
#include "gpucast/sweep.h"
#include "src/cli/step_source.h"

namespace gpucast::cli {

// `argument`: "batch=16,32,64"; a word of the command contains "{batch}". Sets `options.gpus`. Unset: interrupted. Throws Error for an
// argument or a command that cannot be swept. If the run of one value fails, its row has the reason.
std::optional<Sweep> run_sweep(const std::string& argument, const StepSource& source, JobOccupancyOptions options);

}  // namespace gpucast::cli

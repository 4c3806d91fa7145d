// `gpucast occupancy --sweep NAME=A,B,C -- COMMAND`: the command once for each value, as one batch.
#pragma once

#include <optional>
#include <string>

#include "gpucast/job_occupancy.h"
#include "gpucast/sweep.h"
#include "src/cli/step_source.h"

namespace gpucast::cli {

// `argument`: "batch=16,32,64"; a word of the command has "{batch}" in it. `options.gpus` is set here. Unset: interrupted. Throws Error for
// an argument or a command that cannot be swept; a value whose run fails is a row that says why.
std::optional<Sweep> run_sweep(const std::string& argument, const StepSource& source, JobOccupancyOptions options);

}  // namespace gpucast::cli

// What a change to the training would save, for a profiler trace of the CPU: the trace is turned into what CUDA allocates once more.
#pragma once

#include <string>
#include <vector>

#include "gpucast/explain.h"
#include "src/orchestrate/rules.h"
#include "src/predict/analysis.h"

namespace gpucast {

// Half the batch, and bfloat16 under autocast. `options`: as `analysis` was made. Nothing for the trace of a GPU or of a paper's method.
std::vector<Remedy> profile_remedies(const Analysis& analysis, const std::string& path, const OrchestrateOptions& options);

}  // namespace gpucast

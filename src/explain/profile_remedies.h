// Savings of changes to the training, for a profiler trace of the CPU: predicts CUDA's allocations again from a changed trace.
#pragma once

#include <string>
#include <vector>

#include "gpucast/explain.h"
#include "src/orchestrate/rules.h"
#include "src/predict/analysis.h"

namespace gpucast {

// Tries half the batch, and bfloat16 under autocast. `options`: the same that made `analysis`. Empty for a trace of a GPU, and for a
// paper's method.
std::vector<Remedy> profile_remedies(const Analysis& analysis, const std::string& path, const OrchestrateOptions& options);

}  // namespace gpucast

// Which PyTorch operator launched each piece of the GPU's work.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/trace.h"

namespace gpucast {

// For each piece of work the index of its operator in step.operators, or -1. Work belongs to the innermost operator that ran on its thread
// at the time of the launch; one clock times both. A thread of the virtual GPU's log is matched to the profiler's thread whose operators
// contain most of its work. Work that a graph launches belongs to the operator that ran when the graph was captured.
std::vector<int64_t> operators_of_work(const ObservedStep& step);

}  // namespace gpucast

// The step of a job as traces in Chrome's format.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>

#include "gpucast/gpu.h"
#include "gpucast/job_step.h"

namespace gpucast {

// All captured ranks on one clock, a process for each. `job`: with slices.
void write_job_trace(const JobStep& job, const Gpu& gpu, std::ostream& out);

// One captured rank (an index in `job.captured`) in a file of its own, as PyTorch's profiler writes it.
void write_rank_trace(const JobStep& job, size_t captured, const Gpu& gpu, std::ostream& out);

}  // namespace gpucast

// The step of a job as a trace in Chrome's format, for Perfetto: a process for each captured rank.
#pragma once

#include <ostream>
#include <string>

#include "gpucast/job_step.h"

namespace gpucast {

// `job`: with slices. `gpu`: the card's id.
void write_job_trace(const JobStep& job, const std::string& gpu, std::ostream& out);

}  // namespace gpucast

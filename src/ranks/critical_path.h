// What the end of a job's step waited for.
#pragma once

#include <vector>

#include "src/ranks/job_clock.h"
#include "src/ranks/job_time.h"

namespace gpucast {

// `ranks`: with their spans. `zero_ns` on the players' clock is 0 there.
std::vector<PlayedOperation> find_critical_path(const PlayedJob& job, const Meetings& meetings, const std::vector<RankTime>& ranks,
                                                double zero_ns);

}  // namespace gpucast

// The ranks of a job played on one clock: a collective waits for its last rank, a message for its other end.
// docs/explanation/ranks.md draws it.
#pragma once

#include <vector>

#include "src/ranks/job_time.h"
#include "src/schedule/step_constants.h"

namespace gpucast {

// Throws Error for ranks that do not fit together: they make different collectives or messages, or wait for each other forever.
JobTime play(const std::vector<PlayedRank>& ranks, const StepConstants& constants);

// JobTime::step_ns alone.
double play_step_ns(const std::vector<PlayedRank>& ranks, const StepConstants& constants);

}  // namespace gpucast

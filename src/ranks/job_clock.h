// All ranks of a job on one clock, each with its host and its card (src/schedule/step_player.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/ranks/job_time.h"
#include "src/ranks/meetings.h"
#include "src/schedule/step_player.h"

namespace gpucast {

struct PlayedJob {
  std::vector<std::unique_ptr<StepPlayer>> players;
  // Of the measured step, by meeting: when its last rank came, and which one that was (an index in Meetings::attendances).
  std::vector<double> opened_ns;
  std::vector<uint32_t> last;
};

// `held`: by rank and shape, the multiprocessors that a collective holds.
PlayedJob play_job(const std::vector<PlayedRank>& ranks, const std::vector<std::vector<double>>& held, const Meetings& meetings,
                   const StepConstants& constants, bool hosts_cost);

}  // namespace gpucast

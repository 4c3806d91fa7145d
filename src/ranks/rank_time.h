// Where the time of a rank's step goes.
#pragma once

#include <vector>

#include "src/ranks/job_time.h"
#include "src/schedule/step_player.h"

namespace gpucast {

// `uses`: by shape. `out`: its begin_ns, end_ns and spans are there; receives all other times but the schedule. `zero_ns` on the player's
// clock is 0 in `out`.
void divide_step(const StepPlayer& player, const std::vector<CollectiveUse>& uses, double zero_ns, RankTime* out);

}  // namespace gpucast

// The figures of a whole plan, from its placements and the use of each card.
#pragma once

#include <span>
#include <vector>

#include "src/pack/cluster_state.h"
#include "src/pack/job.h"
#include "src/pack/plan.h"

namespace gpucast::pack {

// Fills the totals of `plan` and the shares of its cards. All jobs have ended. `order`: indices into Plan::jobs, by arrival.
void add_totals(const std::vector<const Job*>& by_arrival, std::span<const uint32_t> order, const std::vector<CardState>& cards,
                Plan* plan);

}  // namespace gpucast::pack

// Which waiting job starts on a card that has room.
#pragma once

#include <cstdint>

#include "src/pack/choose_cards.h"
#include "src/pack/cluster_state.h"
#include "src/pack/waiting_queue.h"

namespace gpucast::pack {

inline constexpr uint32_t kNoJob = UINT32_MAX;

// The first job in the queue that fits, and its cards, including `card`; or kNoJob.
uint32_t first_job_that_fits(uint32_t card, ClusterState* state, WaitingQueue* queue, CardChooser* chooser, CardChoice* choice);

// Among the first jobs in the queue that fit, the one with the highest gain for the card, and of equal ones the first; or kNoJob. A gang
// may get other cards, if they are better for it.
uint32_t best_job_for_card(uint32_t card, int64_t now_ns, ClusterState* state, WaitingQueue* queue, CardChooser* chooser,
                           CardChoice* choice);

}  // namespace gpucast::pack

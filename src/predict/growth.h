// Memory that grows from step to step: what step n made and is still in use after step n + 2, and what holds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpucast/history.h"
#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/base/alloc_conf.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

// Unset: nothing grows, or fewer than 5 steps were captured. Growth that a collection's own bound ends has `fills_bytes`.
std::optional<Growth> find_growth(const Trace& trace, const AllocConf& conf, const Lifetimes& lifetimes, const Attribution& attribution);

// Sets the step at which a card runs out of memory: its allocator can get `capacity_bytes`. The last steps are repeated in a replay; where
// no two of them are alike, the growth so far is continued.
void find_oom_step(const History& history, const Trace& trace, int64_t capacity_bytes, int64_t device_total_bytes, Growth* growth);

// "grows by 96.0 MiB a step; at this pace out of memory at step 395 on this card"
std::string growth_sentence(const Growth& growth);

}  // namespace gpucast

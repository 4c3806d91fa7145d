// Which allocator settings would serve a history best: a documented set of them (docs/howto/choose-allocator-settings.md), replayed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/history.h"
#include "gpucast/replay.h"

namespace gpucast {

struct TriedSetting {
  std::string alloc_conf;
  bool survives = true;                                       // no allocation failed, those included that failed when it was recorded
  int64_t peak_reserved_bytes = 0, peak_allocated_bytes = 0;  // until the first failure
  int64_t rounding_bytes = 0;                                 // at the peak of reserved: blocks' bytes beyond what was asked for
  int64_t driver_calls = 0;                                   // memory taken, given back, mapped, unmapped: each costs time
  int64_t alloc_retries = 0;
};

struct Tuning {
  std::optional<int64_t> capacity_bytes;
  std::vector<TriedSetting> tried;  // without a capacity: the smallest peak first; with one: who survives first, with the least trouble
  size_t own = 0;                   // in `tried`: the settings that are there now
  std::optional<size_t> best;       // in `tried`: worth a change; unset: nothing gains kLeastGainBytes, or saves the run, or a retry
};

// A gain that is not worth a change: one page of the driver's.
inline constexpr int64_t kLeastGainBytes = int64_t{2} << 20;

// `own_conf` and what is tried for this release and capacity, `own_conf` first, each once.
std::vector<std::string> settings_to_try(const History& history, const std::string& own_conf, bool with_capacity);

// Replays each setting, with the capacity, the card and the addresses of `own`, the settings that are there now.
// O(settings * replay).
Tuning tune(const History& history, const ReplaySettings& own);

}  // namespace gpucast

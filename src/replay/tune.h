// Finds the best allocator settings for a history, by replaying a documented set of them (docs/howto/choose-allocator-settings.md).
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
  bool survives = true;                                       // no allocation failed, not even those that failed in the recording
  int64_t peak_reserved_bytes = 0, peak_allocated_bytes = 0;  // until the first failure
  int64_t rounding_bytes = 0;                                 // at the peak of reserved: blocks' bytes minus requested bytes
  int64_t driver_calls = 0;                                   // calls that allocate, free, map or unmap memory; each costs time
  int64_t alloc_retries = 0;
};

struct Tuning {
  std::optional<int64_t> capacity_bytes;
  std::vector<TriedSetting>
      tried;       // without a capacity: the smallest peak first; with one: settings that survive first, then by retries and calls
  size_t own = 0;  // index in `tried`: the current settings
  std::optional<size_t>
      best;  // index in `tried`: worth a change; unset: no setting gains kLeastGainBytes, makes the run survive, or avoids a retry
};

// A smaller gain is not worth a change: one page of the driver.
inline constexpr int64_t kLeastGainBytes = int64_t{2} << 20;

// `own_conf`, then the settings to try for this release and capacity, each once.
std::vector<std::string> settings_to_try(const History& history, const std::string& own_conf, bool with_capacity);

// Replays each setting with the capacity, card and addresses of `own`, the current settings. O(settings * replay).
Tuning tune(const History& history, const ReplaySettings& own);

}  // namespace gpucast

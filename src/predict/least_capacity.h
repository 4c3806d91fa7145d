// The smallest capacity on which the history runs, found by replays at smaller capacities.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpucast/history.h"
#include "gpucast/replay.h"

namespace gpucast {

struct LeastCapacity {
  // True: the simulated allocator does exactly the same as the recorded one. Else the figures below are approximate.
  bool replay_matches = false;
  std::string first_difference;
  // The least memory that the allocator must be able to get, if it gives cached memory back when necessary; unset: the history needs none
  // or cannot be replayed. With the history's own settings, and with expandable_segments:True added to them.
  std::optional<int64_t> own_settings_bytes, expandable_bytes;
};

LeastCapacity least_capacity(const History& history);

// Whether the history runs if the allocator can get `capacity_bytes` of a card, and how often it must give cached memory back.
struct RunsAt {
  bool runs = false;
  int64_t reclaims = 0;
};
// A replay on a card that leaves `capacity_bytes` to the allocator, until it runs out of memory.
ReplaySettings settings_at(const History& history, int64_t capacity_bytes, int64_t device_total_bytes);
RunsAt runs_at(const History& history, int64_t capacity_bytes, int64_t device_total_bytes);

// "max_split_size_mb:64" -> "max_split_size_mb:64,expandable_segments:True"; an earlier value of it is removed.
std::string with_expandable_segments(const std::string& alloc_conf);

}  // namespace gpucast

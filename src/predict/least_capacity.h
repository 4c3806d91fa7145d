// How small a card may be: replays of the history at smaller capacities.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpucast/history.h"

namespace gpucast {

struct LeastCapacity {
  // Does the simulated allocator do exactly what the recorded one did? When not, the figures below are approximate.
  bool replay_matches = false;
  std::string first_difference;
  // The least that the allocator must be able to get, giving cached memory back as it goes; unset: the history needs none or
  // cannot be replayed. With the history's own settings, and with expandable_segments:True added to them.
  std::optional<int64_t> own_settings_bytes, expandable_bytes;
};

LeastCapacity least_capacity(const History& history);

// Does the history run when the allocator can get `capacity_bytes` of a card, and how often must it give cached memory back for that?
struct RunsAt {
  bool runs = false;
  int64_t reclaims = 0;
};
RunsAt runs_at(const History& history, int64_t capacity_bytes, int64_t device_total_bytes);

// "max_split_size_mb:64" -> "max_split_size_mb:64,expandable_segments:True"; any earlier mention of it is dropped.
std::string with_expandable_segments(const std::string& alloc_conf);

}  // namespace gpucast

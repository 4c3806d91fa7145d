// What `gpucast replay` shows, as plain structs; rendered as text or JSON (docs/reference/replay.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/prediction.h"

namespace gpucast {

struct SavedBy {
  std::string alloc_conf;
  int64_t peak_reserved_bytes = 0, driver_calls = 0, alloc_retries = 0;
};

struct ReplayOomReport {
  Place place;                  // `event` always; the rest as far as the file says
  bool recorded = false;        // it failed when it was recorded too
  bool stopped = false;         // the replay ended there
  int64_t requested_bytes = 0;  // by the program (recorded failures: rounded)
  int64_t segment_bytes = 0;    // what the allocator asked the driver for: PyTorch's "Tried to allocate"
  int64_t free_bytes = 0, reserved_bytes = 0, allocated_bytes = 0, largest_free_block_bytes = 0;
  std::string message;  // as PyTorch would have printed it; "" for recorded ones
  int64_t capacity_bytes = 0;
  std::vector<SavedBy> saved_by;  // settings under which the history runs at this capacity, the best first
  int64_t settings_tried = 0;
  // The least capacity at which it runs with this row's settings, and with expandable segments.
  std::optional<int64_t> min_capacity_bytes, min_capacity_expandable_bytes;
};

struct ReplayRow {
  std::string alloc_conf;
  std::string addresses;  // "recorded", "linux", "ascending"
  std::optional<int64_t> capacity_bytes;
  std::string gpu;  // the card that the capacity is of
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  int64_t peak_event = 0;                                                             // where reserved reached its peak
  int64_t segments = 0;                                                               // at the end
  int64_t largest_free_block_bytes = 0, fragmentation_bytes = 0, rounding_bytes = 0;  // at that peak
  int64_t alloc_retries = 0, segment_allocs = 0, segment_frees = 0, ooms = 0;
  std::optional<ReplayOomReport> oom;  // the first
  std::optional<bool> matches_recorded;
  std::string first_difference;
};

struct TuneRow {
  std::string alloc_conf;
  bool survives = true;
  int64_t peak_reserved_bytes = 0, peak_allocated_bytes = 0, rounding_bytes = 0, driver_calls = 0, alloc_retries = 0;
};

struct TuneReport {
  std::optional<int64_t> capacity_bytes;
  std::string gpu;
  std::vector<TuneRow> rows;   // the best first
  size_t own = 0;              // in `rows`
  std::optional<size_t> best;  // in `rows`; unset: nothing is worth a change
};

struct ReplayReport {
  std::string source;  // "vgpu", "snapshot", "events"
  std::string file, torch;
  int64_t events = 0;
  bool partial = false;  // the history begins in the middle
  std::vector<ReplayRow> rows;
  std::vector<TuneReport> tuned;
  std::vector<Warning> warnings;
};

std::string replay_text(const ReplayReport& report);
std::string replay_json(const ReplayReport& report);

// "1.50 GiB", "512 bytes": as PyTorch's messages say it.
std::string torch_size(int64_t bytes);

}  // namespace gpucast

// The contents of `gpucast replay`'s report, as plain structs; rendered as text or JSON (docs/reference/replay.md).
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
  Place place;                  // always has `event`; the other fields if the file has them
  bool recorded = false;        // it failed in the recording too
  bool stopped = false;         // the replay ended there
  int64_t requested_bytes = 0;  // by the program (recorded failures: rounded)
  int64_t segment_bytes = 0;    // the allocator's request to the driver: PyTorch's "Tried to allocate"
  int64_t free_bytes = 0, reserved_bytes = 0, allocated_bytes = 0, largest_free_block_bytes = 0;
  std::string message;  // PyTorch's message; "" for recorded ones
  int64_t capacity_bytes = 0;
  std::vector<SavedBy> saved_by;  // settings with which the history runs at this capacity, the best first
  int64_t settings_tried = 0;
  // The least capacity with which the history runs: with this row's settings, and with expandable segments.
  std::optional<int64_t> min_capacity_bytes, min_capacity_expandable_bytes;
};

struct ReplayRow {
  std::string alloc_conf;
  std::string addresses;  // "recorded", "linux", "ascending"
  std::optional<int64_t> capacity_bytes;
  std::string gpu;  // the card of this capacity
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  int64_t peak_event = 0;                                                             // the event with the peak of reserved
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
  size_t own = 0;              // index in `rows`
  std::optional<size_t> best;  // index in `rows`; unset: no change is worth it
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

// "1.50 GiB", "512 bytes": as in PyTorch's messages.
std::string torch_size(int64_t bytes);

}  // namespace gpucast

// A history replayed with other allocator settings, or on a smaller card.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/allocator.h"
#include "gpucast/history.h"

namespace gpucast {

// Where new segments are placed. This matters because best fit breaks ties by address.
enum class AddressPolicy : uint8_t {
  linux_driver,  // as NVIDIA's driver on Linux: each address range below the last
  ascending,     // ever higher, as in event files
  recorded,      // as in the history; only with its own settings and capacity
};

struct ReplaySettings {
  std::string alloc_conf;                 // PYTORCH_CUDA_ALLOC_CONF, or "backend:bfc" for TensorFlow's allocator
  std::optional<int64_t> capacity_bytes;  // the memory that the driver can give; unset: no limit
  // The card's total memory, which memory fractions and expandable segments depend on. 0: the recorded card's if nothing is limited,
  // otherwise the capacity.
  int64_t device_total_bytes = 0;
  AddressPolicy addresses = AddressPolicy::linux_driver;
  bool stop_at_oom = false;  // the replay ends at the first failed allocation, as most programs do
};

struct ReplayOom {
  int64_t op = 0;     // index in History::ops
  int64_t event = 0;  // index in the recorded history (event files: the same as `op`)
  OutOfMemory details;
  int64_t largest_free_block_bytes = 0;  // in the allocator's memory
};

struct ReplayResult {
  ReplaySettings settings;
  std::vector<std::string> unknown_settings;
  AllocatorStats stats;  // at the end
  int64_t peak_reserved_op = 0;
  // When reserved reached its peak first:
  int64_t allocated_at_peak_bytes = 0, largest_free_block_at_peak_bytes = 0;
  int64_t rounding_at_peak_bytes = 0;  // of the blocks in use: their size beyond the requests
  int64_t ooms = 0;                    // allocations that failed here but not in the recording
  std::optional<ReplayOom> first_oom;
  std::optional<ReplayOom> first_recorded_oom;  // the first allocation that failed both here and in the recording
  std::vector<Segment> segments;                // at the end
  std::optional<bool> matches_recorded;         // only for AddressPolicy::recorded
  std::string first_difference;                 // the first difference, "" for none
  int64_t difference_op = -1;                   // the op of that difference; -1: no difference, or only at the end
  int64_t fragmentation_at_peak_bytes() const { return stats.peak_reserved_bytes - allocated_at_peak_bytes; }
};

// Passed after each op: its index, its actions, the allocator, and whether its allocation failed.
struct ReplayStep {
  int64_t op;
  const AllocOp& request;
  const std::vector<AllocatorAction>& actions;
  const Allocator& allocator;
  BlockRef block;          // alloc: the new block; free and record_stream: the block before the op; kNoBlock: none
  uint64_t block_address;  // of `block`, before the op
  bool out_of_memory;
};
using StepObserver = std::function<void(const ReplayStep&)>;

// Exact for PyTorch's allocator (docs/explanation/allocator.md). O(ops * log(free blocks)).
ReplayResult replay(const History& history, const ReplaySettings& settings, const StepObserver& observer = nullptr);

// The least capacity, in pages of 2 MiB, at which the history runs without a failed allocation (beyond those that failed in the recording)
// if PyTorch gives cached memory back. Found by bisection over replays. Unset: it fails even without a limit.
std::optional<int64_t> min_capacity_bytes(const History& history, const std::string& alloc_conf);

}  // namespace gpucast

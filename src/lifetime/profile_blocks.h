// [memory] events of a profiler trace -> memory blocks with birth, death and size.
//
// An allocation and the next free at its address make a block. Addresses are reused, so the events are followed in order
// (VeritasEst, Algorithm 1). A block without a free outlives the trace; a free without an allocation ends a block that is older
// than the trace.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/profile.h"

namespace gpucast {

struct ProfileBlock {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint64_t address = 0;
  int64_t size_bytes = 0;
  uint32_t alloc_event = 0;      // index of ProfileTrace::memory; kNever: before the trace began
  uint32_t free_event = kNever;  // kNever: not in this trace
  bool before_start() const { return alloc_event == kNever; }
};

struct ProfileBlocks {
  std::vector<ProfileBlock> blocks;  // in order of birth; blocks older than the trace are last, in order of death
  int64_t allocated_bytes = 0;       // sum of the blocks that the trace allocates
  int64_t frees_missing = 0;         // allocations at an address in use: a free is missing
};

// Uses only the events of one device. device_type: 0 CPU, 1 CUDA; the device's number is the device_id of the first such event.
ProfileBlocks pair_blocks(const std::vector<ProfileMemory>& memory, int device_type);

}  // namespace gpucast

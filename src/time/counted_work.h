// What a launch does, as counted from its kernel's code (src/kernels). All sums are over the whole launch.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "src/time/precision.h"

namespace gpucast {

// The way of one warp through its code, were it alone on its multiprocessor.
struct WarpChain {
  double cycles = 0;        // of issuing, and of waiting for results, barriers and copies
  double load_cycles = 0;   // of these: waiting for device memory
  double loads = 0;         // loads from device memory that wait for one another
  double shared_waits = 0;  // the same of shared memory and shuffles
  friend auto operator<=>(const WarpChain&, const WarpChain&) = default;
};

// The counts that the time model takes as they are.
struct LaunchCounts {
  double blocks = 0;
  double atomic_sectors = 0;                              // of device memory
  double atomic_passes = 0;                               // of warps' atomics: a warp's lanes that meet on one place need a pass each
  double gathered_sectors = 0;                            // of loads at places that loaded numbers decide
  double tile_bytes = 0;                                  // of loads through tensor maps, whose places are not known
  double shared_wavefronts = 0;                           // with bank conflicts: a request without conflicts is 1
  std::array<double, kPrecisionCount> tensor_flops = {};  // of matrix instructions; a multiplication and an addition are 2
  double fp32 = 0, fp16 = 0, fp64 = 0, integer = 0, special = 0, control = 0, memory = 0;  // instructions of warps
  double division = 0;      // instructions that divisions of whole numbers need beyond one each
  WarpChain longest, mean;  // of all blocks: each block's longest warp
  friend auto operator<=>(const LaunchCounts&, const LaunchCounts&) = default;
};

struct CountedWork : LaunchCounts {  // no blocks: the work was not counted
  int block_threads = 0;
  int registers = 0;         // of a thread; 0: not known
  int64_t shared_bytes = 0;  // of a block
  // Bytes of device memory. A sector is 32 bytes that a warp's request touches, whatever cache answers it.
  double sectors = 0, async_bytes = 0;                 // loads, stores and atomics; copies that pass no register
  double unique_bytes = 0;                             // each byte once: loads, and stores once more
  double block_bytes = 0;                              // each byte once for each block
  double unique_load_bytes = 0, block_load_bytes = 0;  // of these: loads
  double touched_bytes = 0, block_touched_bytes = 0;   // the same of loads and stores together, in whole sectors
  double atomic_bytes = 0;                             // each byte once
  double block_spilled_bytes = 0;                      // of one block: registers that did not fit
  double spills = 1;                                   // how often a block writes and reads them
  double rows_of_blocks = 1;                           // of the grid: blocks of one row run at about the same time
  friend auto operator<=>(const CountedWork&, const CountedWork&) = default;
};

}  // namespace gpucast

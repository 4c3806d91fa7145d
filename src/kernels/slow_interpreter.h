// For tests: PTX run thread by thread, from the text alone and by the words of the PTX ISA. Slow, and shares no code with what it checks.
#pragma once

#include <string>

#include "src/kernels/kernel_counts.h"

namespace gpucast::slow {

struct Counts {
  double integer = 0, fp32 = 0, special = 0, control = 0, memory = 0;  // instructions of warps
  double flops = 0, barriers = 0, load_sectors = 0, store_sectors = 0, atomic_sectors = 0, async_load_bytes = 0, wavefronts = 0;
  double unique_load_bytes = 0, unique_store_bytes = 0, block_load_bytes = 0, block_store_bytes = 0;
  double touched_bytes = 0, block_touched_bytes = 0;  // in whole sectors
};

// One statement a line, one kernel, one array of shared memory, parameters in the order and at the offsets of their types.
// All threads of a warp meet at shuffles and votes; all threads of a block meet at barriers.
// Throws std::runtime_error for what it does not know.
Counts count_every_thread(const std::string& text, const KernelLaunch& launch, const KnownValue& known);

}  // namespace gpucast::slow

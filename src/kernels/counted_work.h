// What a launch does, as the time model takes it.
#pragma once

#include <cstdint>

#include "src/kernels/kernel_counts.h"
#include "src/time/operation.h"

namespace gpucast {

// Writes the work into `out`: bytes and FLOPs of the report, the precision of most of its arithmetic, and the counts. The kind stays.
// `registers` of a thread and `static_shared_bytes` of a block are from the kernel's machine code; 0: not known.
void set_counted(const KernelCounts& counts, const KernelLaunch& launch, const MachineCode& code, Operation* out);

}  // namespace gpucast

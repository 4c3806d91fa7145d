// The whole numbers that compiled kernels store (src/kernels/stored_numbers.h). They are known to later launches as what the host wrote is.
#pragma once

#include <cstdint>

#include "src/vgpu/core/launch_values.h"

namespace gpucast::vgpu {

// After a launch of `kernel`: runs it on what was known before (launch.values), and remembers or forgets what it stored.
GPUCAST_VGPU_API void note_stored_numbers(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                                          const CompiledLaunch& launch);

}  // namespace gpucast::vgpu

extern "C" {
// Whether this thread's last launch of a compiled kernel stored to this range: 1, and the bytes in `to`, if all of it is known now; 0 if
// not all; -1 if it stored nothing there.
GPUCAST_VGPU_API int gpucast_vgpu_stored_numbers(uint64_t address, void* to, uint64_t size_bytes);
}

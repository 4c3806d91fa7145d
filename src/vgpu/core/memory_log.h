// What the program takes from the device, in a file as it happens: it outlives a process that is killed. Internal to the core.
#pragma once

#include <cstdint>

namespace gpucast::vgpu {

// `change_bytes`: taken (above 0) or given back, at `address`. The caller holds the lock of the device's memory.
void note_memory_change(uint64_t address, int64_t change_bytes);

}  // namespace gpucast::vgpu

// Writes each allocation and free on the device to a file at once. The file survives a killed process. Internal to the core.
#pragma once

#include <cstdint>

namespace gpucast::vgpu {

// `change_bytes`: above 0 allocated, below 0 freed, at `address`. The caller holds the lock of the device's memory.
void note_memory_change(uint64_t address, int64_t change_bytes);

}  // namespace gpucast::vgpu

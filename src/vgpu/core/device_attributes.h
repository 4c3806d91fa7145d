// Device attributes by number: cudaDeviceAttr and CUdevice_attribute share them.
#pragma once

#include <cstdint>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

// False: no such attribute.
GPUCAST_VGPU_API bool device_attribute(int attribute, int* value);

// What a card of this capability has and the profile does not name.
GPUCAST_VGPU_API void device_uuid(unsigned char uuid[16]);
constexpr char kPciBusId[] = "0000:01:00.0";
constexpr int kPciBus = 1;
constexpr int kReservedSharedBytes = 1024;  // of a block, from compute capability 8.0 on
constexpr int kPersistingL2Percent = 75;

// How many blocks of this shape one multiprocessor holds. Registers per thread are not known here: 32 are assumed.
GPUCAST_VGPU_API int occupancy_blocks(int block_threads, uint64_t shared_bytes);

}  // namespace gpucast::vgpu

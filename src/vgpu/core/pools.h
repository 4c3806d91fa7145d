// Memory pools: cudaMallocAsync and the driver's cuMemAllocAsync.
#pragma once

#include <cstdint>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

struct PoolUse {
  uint64_t used_bytes, peak_used_bytes, reserved_bytes, peak_reserved_bytes;
};

GPUCAST_VGPU_API uint64_t pool_default(int device);  // 0: no such device
GPUCAST_VGPU_API uint64_t pool_create(int device);
// Destroys the pool. Its live allocations stay valid, and their memory is returned once they are freed.
GPUCAST_VGPU_API Status pool_destroy(uint64_t pool);
GPUCAST_VGPU_API Status pool_alloc(uint64_t pool, size_t size_bytes, uint64_t* address);
GPUCAST_VGPU_API Status pool_free(uint64_t address);  // invalid_value: not from a pool
GPUCAST_VGPU_API Status pool_use(uint64_t pool, PoolUse* use);
GPUCAST_VGPU_API Status pool_reset_peaks(uint64_t pool, bool used, bool reserved);
GPUCAST_VGPU_API Status pool_trim(uint64_t pool, uint64_t keep_bytes);
// The memory that a pool may keep when the program synchronizes (cudaMemPoolAttrReleaseThreshold).
GPUCAST_VGPU_API Status pool_set_threshold(uint64_t pool, uint64_t keep_bytes);
GPUCAST_VGPU_API Status pool_threshold(uint64_t pool, uint64_t* keep_bytes);
// The program has synchronized: each pool returns the memory beyond its threshold.
GPUCAST_VGPU_API void pools_synchronize();
bool pool_find(uint64_t address, Range* range);

}  // namespace gpucast::vgpu

// Objects with a reference count whose destructor is called once nobody, graphs included, holds them.
#pragma once

#include <cstdint>
#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

GPUCAST_VGPU_API uint64_t user_object_create(HostFunction destroy, unsigned references);
GPUCAST_VGPU_API int user_object_change(uint64_t object, int64_t references);

// Of the core, under the lock of streams.
bool user_object_exists(uint64_t object);
void user_object_retain(uint64_t object, int64_t references);  // an unknown one: nothing
// Destructors that are due are added to `due`: to be called without the lock.
void user_object_release(uint64_t object, int64_t references, std::vector<HostFunction>& due);
void call_all(const std::vector<HostFunction>& functions);

}  // namespace gpucast::vgpu

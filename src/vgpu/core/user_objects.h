// Objects with a reference count. The destructor is called once the program and all graphs have released the object.
#pragma once

#include <cstdint>
#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

GPUCAST_VGPU_API uint64_t user_object_create(HostFunction destroy, unsigned references);
GPUCAST_VGPU_API int user_object_change(uint64_t object, int64_t references);

// For the core. The caller holds the lock of streams.
bool user_object_exists(uint64_t object);
void user_object_retain(uint64_t object, int64_t references);  // an unknown object: does nothing
// Adds the destructors to call to `due`. Call them without the lock.
void user_object_release(uint64_t object, int64_t references, std::vector<HostFunction>& due);
void call_all(const std::vector<HostFunction>& functions);

}  // namespace gpucast::vgpu

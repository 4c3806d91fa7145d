// What the files of the CUDA driver (cuda*.cc) share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/streams.h"
#include "src/vgpu/libs/cuda_types.h"

#define CUDA_API extern "C" GPUCAST_VGPU_API

// The driver exports most functions under two names: the name of the first release, and one with _v2. No program of the last decade uses
// the 32-bit arguments of the first one, so both are the same function here.
#define CUDA_ALSO(name, target, ...) CUDA_API int name(__VA_ARGS__) __attribute__((alias(#target)))

namespace gpucast::vgpu {

// CUresult codes that core/streams.h does not have.
constexpr Code kNoDevice{100};
constexpr Code kInvalidDevice{101};
constexpr Code kInvalidContext{201};
constexpr Code kFileNotFound{301};
constexpr Code kHostMemoryAlreadyRegistered{712};
constexpr Code kHostMemoryNotRegistered{713};

// The handle of a device's primary context.
constexpr uint64_t kFirstContext = 0x5f0000001000, kContextStep = 0x1000;
constexpr uint64_t primary_context(int device) { return kFirstContext + static_cast<uint64_t>(device) * kContextStep; }
// -1: no device has this handle.
inline int device_of_context(uint64_t context) {
  if (context < kFirstContext || (context - kFirstContext) % kContextStep != 0) return -1;
  const uint64_t device = (context - kFirstContext) / kContextStep;
  return device < static_cast<uint64_t>(device_count()) ? static_cast<int>(device) : -1;
}

inline int driver_code(Status status) {
  return status == Status::ok ? kSuccess : status == Status::out_of_memory ? kOutOfMemory : kInvalidValue;
}

}  // namespace gpucast::vgpu

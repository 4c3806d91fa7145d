// The cards of the virtual machine, all of one kind: how many there are, which of them this process sees, and which one a thread uses.
// Everywhere else a device is a number as the program says it: an index into what CUDA_VISIBLE_DEVICES leaves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

constexpr int kMostDevices = 64;

// CUDA_VISIBLE_DEVICES is read when a count is first asked for, as the driver does. A number beyond the machine's cards makes the machine
// larger: where the job will run, it has them.
GPUCAST_VGPU_API int device_count();
GPUCAST_VGPU_API int physical_device_count();       // all of the machine, which NVML counts
GPUCAST_VGPU_API int physical_device(int device);   // NVML's number of it
GPUCAST_VGPU_API int visible_device(int physical);  // -1: this process does not see it
GPUCAST_VGPU_API bool is_device(int device);
GPUCAST_VGPU_API bool can_access_peer(int device, int peer);
// Of the current device to a peer: the code that cudaError_t and CUresult have in common.
GPUCAST_VGPU_API int change_peer_access(int peer, bool enable);

// Of the calling thread; 0 at first. False: no such device.
GPUCAST_VGPU_API int current_device();
GPUCAST_VGPU_API bool set_current_device(int device);

// What the value of CUDA_VISIBLE_DEVICES names, up to the first entry that names nothing. `machine`: how many cards there are at least.
std::vector<int> parse_visible_devices(std::string_view text, int machine);

}  // namespace gpucast::vgpu

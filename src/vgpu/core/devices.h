// The cards of the virtual machine, all of one kind: their number, the cards that this process sees, and the card that a thread uses.
// Everywhere else a device is the program's number: an index into the cards that CUDA_VISIBLE_DEVICES leaves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

constexpr int kMostDevices = 64;

// CUDA_VISIBLE_DEVICES is read at the first query of a count, as in the driver. A number beyond the machine's cards makes the machine
// larger: the machine of the real job has that card.
GPUCAST_VGPU_API int device_count();
GPUCAST_VGPU_API int physical_device_count();       // all of the machine's cards, as NVML counts
GPUCAST_VGPU_API int physical_device(int device);   // NVML's number of the device
GPUCAST_VGPU_API int visible_device(int physical);  // -1: this process does not see it
GPUCAST_VGPU_API bool is_device(int device);
GPUCAST_VGPU_API bool can_access_peer(int device, int peer);
// From the current device to a peer. Returns a code that cudaError_t and CUresult share.
GPUCAST_VGPU_API int change_peer_access(int peer, bool enable);

// The calling thread's device; 0 at first. False: no such device.
GPUCAST_VGPU_API int current_device();
GPUCAST_VGPU_API bool set_current_device(int device);

// The devices in the value of CUDA_VISIBLE_DEVICES, up to the first invalid entry. `machine`: the least number of cards.
std::vector<int> parse_visible_devices(std::string_view text, int machine);

}  // namespace gpucast::vgpu

// Device attributes by number: cudaDeviceAttr and CUdevice_attribute share them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

// Of any of the machine's cards, which are alike but for their place on the bus. False: no such attribute.
GPUCAST_VGPU_API bool device_attribute(int attribute, int* value);

constexpr int kPciBusAttribute = 33;

// What a card of this capability has and the profile does not name.
GPUCAST_VGPU_API void device_uuid(int physical, unsigned char uuid[16]);
constexpr size_t kPciBusIdSize = sizeof "0000:01:00.0";
constexpr int pci_bus(int physical) { return physical + 1; }
GPUCAST_VGPU_API void pci_bus_id(int physical, char text[kPciBusIdSize]);
GPUCAST_VGPU_API int physical_by_pci_bus_id(const char* text);  // -1: none
constexpr int kReservedSharedBytes = 1024;                      // of a block, from compute capability 8.0 on
constexpr int kPersistingL2Percent = 75;

// How many blocks of a kernel one multiprocessor holds. 32 registers a thread where they are not known.
GPUCAST_VGPU_API int occupancy_blocks(const KernelResources& kernel, int block_threads, uint64_t dynamic_shared_bytes);
constexpr int kAssumedRegisters = 32;

}  // namespace gpucast::vgpu

// Device attributes by number: cudaDeviceAttr and CUdevice_attribute share them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

// For any of the machine's cards: they differ only in their place on the bus. False: no such attribute.
GPUCAST_VGPU_API bool device_attribute(int attribute, int* value);

constexpr int kPciBusAttribute = 33;

// Properties that follow from the compute capability and that the profile does not name.
GPUCAST_VGPU_API void device_uuid(int physical, unsigned char uuid[16]);
constexpr size_t kPciBusIdSize = sizeof "0000:01:00.0";
constexpr int pci_bus(int physical) { return physical + 1; }
GPUCAST_VGPU_API void pci_bus_id(int physical, char text[kPciBusIdSize]);
GPUCAST_VGPU_API int physical_by_pci_bus_id(const char* text);  // -1: none
constexpr int kReservedSharedBytes = 1024;                      // of each block, from compute capability 8.0 on
constexpr int kPersistingL2Percent = 75;

// The number of blocks of a kernel that one multiprocessor holds. Unknown registers count as 32 a thread.
GPUCAST_VGPU_API int occupancy_blocks(const KernelResources& kernel, int block_threads, uint64_t dynamic_shared_bytes);
constexpr int kAssumedRegisters = 32;

}  // namespace gpucast::vgpu

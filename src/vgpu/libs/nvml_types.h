// The structs of NVML that our functions fill in; types_check.cc compares them with NVIDIA's header where it is installed.
#pragma once

namespace gpucast::vgpu::nvml {

struct Memory {
  unsigned long long total, free, used;
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct Utilization {
  unsigned gpu, memory;  // percent
};

struct PciInfo {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};

struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long usedGpuMemory;
};

struct ProcessInfoV2 {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};

}  // namespace gpucast::vgpu::nvml

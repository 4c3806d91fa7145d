// Virtual NVTX: marks and ranges are ignored. Handles are null, as without a profiler.
#include "src/vgpu/libs/call.h"

namespace {
thread_local int depth = 0;
}

// Push returns the level of the range it opens, pop of the one it closes; -1: none was open.
GPUCAST_EXPORT int nvtxRangePushA() { return depth++; }
GPUCAST_EXPORT int nvtxRangePushW() { return depth++; }
GPUCAST_EXPORT int nvtxRangePushEx() { return depth++; }
GPUCAST_EXPORT int nvtxDomainRangePushEx() { return depth++; }
GPUCAST_EXPORT int nvtxRangePop() { return depth > 0 ? --depth : -1; }
GPUCAST_EXPORT int nvtxDomainRangePop() { return depth > 0 ? --depth : -1; }
GPUCAST_EXPORT void* nvtxDomainCreateA() { return nullptr; }
GPUCAST_EXPORT void* nvtxDomainCreateW() { return nullptr; }
GPUCAST_EXPORT void* nvtxDomainRegisterStringA() { return nullptr; }
GPUCAST_EXPORT void* nvtxDomainRegisterStringW() { return nullptr; }
GPUCAST_EXPORT void* nvtxDomainResourceCreate() { return nullptr; }
GPUCAST_EXPORT void* nvtxDomainSyncUserCreate() { return nullptr; }
GPUCAST_EXPORT void* nvtxGetExportTable() { return nullptr; }

// Marks, names, and ranges with a number: 0 for each.
#define NOTHING(Name) \
  GPUCAST_EXPORT uint64_t Name() { return 0; }
NOTHING(nvtxDomainDestroy)
NOTHING(nvtxDomainMarkEx)
NOTHING(nvtxDomainNameCategoryA)
NOTHING(nvtxDomainNameCategoryW)
NOTHING(nvtxDomainRangeEnd)
NOTHING(nvtxDomainRangeStartEx)
NOTHING(nvtxDomainResourceDestroy)
NOTHING(nvtxDomainSyncUserAcquireFailed)
NOTHING(nvtxDomainSyncUserAcquireStart)
NOTHING(nvtxDomainSyncUserAcquireSuccess)
NOTHING(nvtxDomainSyncUserDestroy)
NOTHING(nvtxDomainSyncUserReleasing)
NOTHING(nvtxMarkA)
NOTHING(nvtxMarkEx)
NOTHING(nvtxMarkW)
NOTHING(nvtxNameCategoryA)
NOTHING(nvtxNameCategoryW)
NOTHING(nvtxNameClCommandQueueA)
NOTHING(nvtxNameClCommandQueueW)
NOTHING(nvtxNameClContextA)
NOTHING(nvtxNameClContextW)
NOTHING(nvtxNameClDeviceA)
NOTHING(nvtxNameClDeviceW)
NOTHING(nvtxNameClEventA)
NOTHING(nvtxNameClEventW)
NOTHING(nvtxNameClMemObjectA)
NOTHING(nvtxNameClMemObjectW)
NOTHING(nvtxNameClProgramA)
NOTHING(nvtxNameClProgramW)
NOTHING(nvtxNameClSamplerA)
NOTHING(nvtxNameClSamplerW)
NOTHING(nvtxNameCuContextA)
NOTHING(nvtxNameCuContextW)
NOTHING(nvtxNameCuDeviceA)
NOTHING(nvtxNameCuDeviceW)
NOTHING(nvtxNameCuEventA)
NOTHING(nvtxNameCuEventW)
NOTHING(nvtxNameCuStreamA)
NOTHING(nvtxNameCuStreamW)
NOTHING(nvtxNameCudaDeviceA)
NOTHING(nvtxNameCudaDeviceW)
NOTHING(nvtxNameCudaEventA)
NOTHING(nvtxNameCudaEventW)
NOTHING(nvtxNameCudaStreamA)
NOTHING(nvtxNameCudaStreamW)
NOTHING(nvtxNameOsThreadA)
NOTHING(nvtxNameOsThreadW)
NOTHING(nvtxRangeEnd)
NOTHING(nvtxRangeStartA)
NOTHING(nvtxRangeStartEx)
NOTHING(nvtxRangeStartW)

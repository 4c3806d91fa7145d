// Compares our declarations with NVIDIA's headers, where CMake finds them: nothing runs, compiling is the test.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "src/vgpu/libs/cuda_types.h"
#include "src/vgpu/libs/error_names.h"
#if __has_include(<nvml.h>)
#include <nvml.h>

#include "src/vgpu/libs/nvml_types.h"
#endif

#include "src/vgpu/core/streams.h"

static_assert(CUDA_VERSION / 1000 == GPUCAST_CUDA, "headers of another CUDA release");

namespace gpucast::vgpu {

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs))
#define SAME_FIELD(ours, our_field, theirs, their_field)                      \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                sizeof(static_cast<ours*>(nullptr)->our_field) == sizeof(static_cast<theirs*>(nullptr)->their_field))
#define SAME(ours, theirs, field) SAME_FIELD(ours, field, theirs, field)

SAME_SIZE(cuda::DeviceProp, cudaDeviceProp);
#define PROP(field) SAME(cuda::DeviceProp, cudaDeviceProp, field)
PROP(name);
PROP(uuid);
PROP(luid);
PROP(luidDeviceNodeMask);
PROP(totalGlobalMem);
PROP(sharedMemPerBlock);
PROP(regsPerBlock);
PROP(warpSize);
PROP(memPitch);
PROP(maxThreadsPerBlock);
PROP(maxThreadsDim);
PROP(maxGridSize);
PROP(totalConstMem);
PROP(major);
PROP(minor);
PROP(textureAlignment);
PROP(texturePitchAlignment);
PROP(multiProcessorCount);
PROP(integrated);
PROP(canMapHostMemory);
PROP(maxTexture1D);
PROP(maxTexture2D);
PROP(maxTexture3DAlt);
PROP(maxTextureCubemap);
PROP(maxTexture2DLayered);
PROP(maxSurface1D);
PROP(maxSurface2DLayered);
PROP(maxSurfaceCubemapLayered);
PROP(surfaceAlignment);
PROP(concurrentKernels);
PROP(ECCEnabled);
PROP(pciBusID);
PROP(asyncEngineCount);
PROP(unifiedAddressing);
PROP(memoryBusWidth);
PROP(l2CacheSize);
PROP(persistingL2CacheMaxSize);
PROP(maxThreadsPerMultiProcessor);
PROP(sharedMemPerMultiprocessor);
PROP(regsPerMultiprocessor);
PROP(managedMemory);
PROP(hostNativeAtomicSupported);
PROP(pageableMemoryAccess);
PROP(concurrentManagedAccess);
PROP(cooperativeLaunch);
PROP(sharedMemPerBlockOptin);
PROP(maxBlocksPerMultiProcessor);
PROP(accessPolicyMaxWindowSize);
PROP(reservedSharedMemPerBlock);
PROP(hostRegisterSupported);
PROP(timelineSemaphoreInteropSupported);
PROP(memoryPoolsSupported);
PROP(memoryPoolSupportedHandleTypes);
PROP(deferredMappingCudaArraySupported);
PROP(ipcEventSupported);
PROP(clusterLaunch);
PROP(unifiedFunctionPointers);
#if GPUCAST_CUDA == 12
PROP(clockRate);
PROP(deviceOverlap);
PROP(computeMode);
PROP(maxTexture1DLinear);
PROP(memoryClockRate);
PROP(singleToDoublePrecisionPerfRatio);
PROP(cooperativeMultiDeviceLaunch);
#else
PROP(deviceNumaId);
PROP(hostNumaId);
PROP(gpuPciDeviceID);
#endif

SAME_SIZE(cuda::FuncAttributes, cudaFuncAttributes);
SAME(cuda::FuncAttributes, cudaFuncAttributes, maxThreadsPerBlock);
SAME(cuda::FuncAttributes, cudaFuncAttributes, numRegs);
SAME(cuda::FuncAttributes, cudaFuncAttributes, ptxVersion);
SAME(cuda::FuncAttributes, cudaFuncAttributes, binaryVersion);
SAME(cuda::FuncAttributes, cudaFuncAttributes, maxDynamicSharedSizeBytes);
SAME(cuda::FuncAttributes, cudaFuncAttributes, preferredShmemCarveout);
SAME_SIZE(cuda::PointerAttributes, cudaPointerAttributes);
SAME(cuda::PointerAttributes, cudaPointerAttributes, type);
SAME(cuda::PointerAttributes, cudaPointerAttributes, hostPointer);
SAME_SIZE(cuda::Dim3, dim3);
SAME_SIZE(cuda::LaunchConfig, cudaLaunchConfig_t);
SAME(cuda::LaunchConfig, cudaLaunchConfig_t, blockDim);
SAME(cuda::LaunchConfig, cudaLaunchConfig_t, dynamicSmemBytes);
SAME(cuda::LaunchConfig, cudaLaunchConfig_t, stream);
SAME(cuda::LaunchConfig, cudaLaunchConfig_t, numAttrs);
SAME_SIZE(cuda::KernelNodeParams, cudaKernelNodeParams);
SAME(cuda::KernelNodeParams, cudaKernelNodeParams, sharedMemBytes);
SAME(cuda::KernelNodeParams, cudaKernelNodeParams, extra);
SAME_SIZE(cuda::HostNodeParams, cudaHostNodeParams);
SAME(cuda::HostNodeParams, cudaHostNodeParams, userData);
SAME_SIZE(cuda::MemsetParams, cudaMemsetParams);
SAME(cuda::MemsetParams, cudaMemsetParams, value);
SAME(cuda::MemsetParams, cudaMemsetParams, height);
SAME_SIZE(cuda::PitchedPtr, cudaPitchedPtr);
SAME_SIZE(cuda::Extent, cudaExtent);
SAME_SIZE(cuda::Memcpy3DParms, cudaMemcpy3DParms);
SAME(cuda::Memcpy3DParms, cudaMemcpy3DParms, srcPtr);
SAME(cuda::Memcpy3DParms, cudaMemcpy3DParms, dstPtr);
SAME(cuda::Memcpy3DParms, cudaMemcpy3DParms, extent);
SAME(cuda::Memcpy3DParms, cudaMemcpy3DParms, kind);
SAME_SIZE(cuda::GraphNodeParams, cudaGraphNodeParams);
SAME(cuda::GraphNodeParams, cudaGraphNodeParams, type);
static_assert(offsetof(cuda::GraphNodeParams, kernel) == offsetof(cudaGraphNodeParams, kernel));
SAME_SIZE(cuda::GraphInstantiateParams, cudaGraphInstantiateParams);
SAME(cuda::GraphInstantiateParams, cudaGraphInstantiateParams, result_out);
SAME_SIZE(cuda::GraphExecUpdateResultInfo, cudaGraphExecUpdateResultInfo);
SAME(cuda::GraphExecUpdateResultInfo, cudaGraphExecUpdateResultInfo, errorFromNode);
SAME_SIZE(cuda::MemLocation, cudaMemLocation);
SAME_SIZE(cuda::MemAccessDesc, cudaMemAccessDesc);
SAME_SIZE(cuda::IpcHandle, cudaIpcMemHandle_t);
SAME_SIZE(cuda::IpcHandle, cudaIpcEventHandle_t);

SAME_SIZE(cuda::DriverLaunchConfig, CUlaunchConfig);
SAME(cuda::DriverLaunchConfig, CUlaunchConfig, blockDimX);
SAME(cuda::DriverLaunchConfig, CUlaunchConfig, sharedMemBytes);
SAME(cuda::DriverLaunchConfig, CUlaunchConfig, hStream);
SAME(cuda::DriverLaunchConfig, CUlaunchConfig, numAttrs);
SAME_SIZE(cuda::MemAllocationProp, CUmemAllocationProp);
SAME(cuda::MemAllocationProp, CUmemAllocationProp, requestedHandleTypes);
SAME(cuda::MemAllocationProp, CUmemAllocationProp, location);
SAME(cuda::MemAllocationProp, CUmemAllocationProp, allocFlags);
SAME_SIZE(cuda::MemAccessDesc, CUmemAccessDesc);
SAME_SIZE(cuda::DevProp, CUdevprop);
SAME(cuda::DevProp, CUdevprop, SIMDWidth);
SAME(cuda::DevProp, CUdevprop, clockRate);

static_assert(kInvalidHandle == int{cudaErrorInvalidResourceHandle} && kInvalidHandle == int{CUDA_ERROR_INVALID_HANDLE});
static_assert(kOutOfMemory == int{cudaErrorMemoryAllocation} && kOutOfMemory == int{CUDA_ERROR_OUT_OF_MEMORY});
static_assert(kNotSupported == int{cudaErrorNotSupported} && kNotSupported == int{CUDA_ERROR_NOT_SUPPORTED});
static_assert(kCaptureUnsupported == int{cudaErrorStreamCaptureUnsupported} &&
              kCaptureInvalidated == int{cudaErrorStreamCaptureInvalidated});
static_assert(kCaptureUnmatched == int{cudaErrorStreamCaptureUnmatched} && kCaptureImplicit == int{cudaErrorStreamCaptureImplicit});
static_assert(kCapturedEvent == int{cudaErrorCapturedEvent} && kNotFound == int{CUDA_ERROR_NOT_FOUND});
static_assert(kCaptureActive == int{cudaStreamCaptureStatusActive} && kCaptureBroken == int{cudaStreamCaptureStatusInvalidated});
static_assert(kGraphNodeKernel == int{cudaGraphNodeTypeKernel} && kGraphNodeEmpty == int{cudaGraphNodeTypeEmpty});
static_assert(kEventDisableTiming == cudaEventDisableTiming && kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(int{cudaDevAttrMultiProcessorCount} == 16 && int{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED} == 102);
static_assert(int{cudaFuncAttributeMaxDynamicSharedMemorySize} == 8 && int{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES} == 8);
static_assert(int{cudaMemPoolAttrReleaseThreshold} == 4 && int{cudaMemPoolAttrUsedMemHigh} == 8);
static_assert(int{CU_POINTER_ATTRIBUTE_DEVICE_POINTER} == 3 && int{CU_POINTER_ATTRIBUTE_RANGE_SIZE} == 12);

#if __has_include(<nvml.h>)
SAME_SIZE(nvml::Memory, nvmlMemory_t);
SAME_SIZE(nvml::MemoryV2, nvmlMemory_v2_t);
SAME_SIZE(nvml::Utilization, nvmlUtilization_t);
SAME_SIZE(nvml::PciInfo, nvmlPciInfo_t);
SAME(nvml::PciInfo, nvmlPciInfo_t, busId);
SAME_SIZE(nvml::ProcessInfoV2, nvmlProcessInfo_t);
#endif

}  // namespace gpucast::vgpu

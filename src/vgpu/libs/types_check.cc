// Compares our declarations with NVIDIA's headers if CMake finds them. Nothing runs: the test is that it compiles.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "src/vgpu/libs/cuda_types.h"
#include "src/vgpu/libs/error_names.h"
#if __has_include(<nvml.h>)
#include <nvml.h>

#include "src/vgpu/libs/nvml_types.h"
#endif
#if __has_include(<cupti.h>)
#include <cupti.h>

#include "src/vgpu/libs/cupti_functions.h"
#include "src/vgpu/libs/cupti_types.h"
#endif

#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/stream_capture.h"
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

#if __has_include(<cupti.h>)
// Readers of all releases must find their fields. So the forms of this release must be as long as ours, or a beginning of ours.
#define BEGINS(ours, theirs) static_assert(sizeof(ours) >= sizeof(theirs) && alignof(ours) >= alignof(theirs))
#define KERNEL(field) SAME(cupti::ActivityKernel, CUpti_ActivityKernel9, field)
BEGINS(cupti::ActivityKernel, CUpti_ActivityKernel9);
KERNEL(kind);
KERNEL(registersPerThread);
KERNEL(start);
KERNEL(end);
KERNEL(completed);
KERNEL(deviceId);
KERNEL(contextId);
KERNEL(streamId);
KERNEL(gridX);
KERNEL(gridZ);
KERNEL(blockX);
KERNEL(blockZ);
KERNEL(staticSharedMemory);
KERNEL(dynamicSharedMemory);
KERNEL(localMemoryPerThread);
KERNEL(correlationId);
KERNEL(gridId);
KERNEL(name);
KERNEL(queued);
KERNEL(submitted);
KERNEL(launchType);
KERNEL(sharedMemoryExecuted);
KERNEL(graphNodeId);
KERNEL(graphId);
KERNEL(channelID);
KERNEL(channelType);
KERNEL(clusterX);
KERNEL(localMemoryTotal_v2);
KERNEL(maxActiveClusters);
#define MEMCPY(field) SAME(cupti::ActivityMemcpy, CUpti_ActivityMemcpy5, field)
BEGINS(cupti::ActivityMemcpy, CUpti_ActivityMemcpy5);
MEMCPY(kind);
MEMCPY(copyKind);
MEMCPY(srcKind);
MEMCPY(dstKind);
MEMCPY(flags);
MEMCPY(bytes);
MEMCPY(start);
MEMCPY(end);
MEMCPY(deviceId);
MEMCPY(contextId);
MEMCPY(streamId);
MEMCPY(correlationId);
MEMCPY(graphNodeId);
MEMCPY(graphId);
MEMCPY(channelType);
#define MEMSET(field) SAME(cupti::ActivityMemset, CUpti_ActivityMemset4, field)
BEGINS(cupti::ActivityMemset, CUpti_ActivityMemset4);
MEMSET(kind);
MEMSET(value);
MEMSET(bytes);
MEMSET(start);
MEMSET(end);
MEMSET(deviceId);
MEMSET(contextId);
MEMSET(streamId);
MEMSET(correlationId);
MEMSET(memoryKind);
MEMSET(graphNodeId);
MEMSET(graphId);
MEMSET(channelType);
SAME_SIZE(cupti::ActivityApi, CUpti_ActivityAPI);
SAME(cupti::ActivityApi, CUpti_ActivityAPI, cbid);
SAME(cupti::ActivityApi, CUpti_ActivityAPI, start);
SAME(cupti::ActivityApi, CUpti_ActivityAPI, end);
SAME(cupti::ActivityApi, CUpti_ActivityAPI, threadId);
SAME(cupti::ActivityApi, CUpti_ActivityAPI, correlationId);
SAME(cupti::ActivityApi, CUpti_ActivityAPI, returnValue);
SAME_SIZE(cupti::ActivityExternalCorrelation, CUpti_ActivityExternalCorrelation);
SAME(cupti::ActivityExternalCorrelation, CUpti_ActivityExternalCorrelation, externalKind);
SAME(cupti::ActivityExternalCorrelation, CUpti_ActivityExternalCorrelation, externalId);
SAME(cupti::ActivityExternalCorrelation, CUpti_ActivityExternalCorrelation, correlationId);
#define SYNCHRONIZATION(field) SAME(cupti::ActivitySynchronization, CUpti_ActivitySynchronization, field)
BEGINS(cupti::ActivitySynchronization, CUpti_ActivitySynchronization);
SYNCHRONIZATION(type);
SYNCHRONIZATION(start);
SYNCHRONIZATION(end);
SYNCHRONIZATION(correlationId);
SYNCHRONIZATION(contextId);
SYNCHRONIZATION(streamId);
SYNCHRONIZATION(cudaEventId);
#define CUDA_EVENT(field) SAME(cupti::ActivityCudaEvent, CUpti_ActivityCudaEvent, field)
BEGINS(cupti::ActivityCudaEvent, CUpti_ActivityCudaEvent);
CUDA_EVENT(correlationId);
CUDA_EVENT(contextId);
CUDA_EVENT(streamId);
CUDA_EVENT(eventId);
#if CUDA_VERSION >= 12080
SAME(cupti::ActivityMemcpy, CUpti_ActivityMemcpy6, copyCount);
SAME(cupti::ActivitySynchronization, CUpti_ActivitySynchronization2, cudaEventSyncId);
SAME(cupti::ActivitySynchronization, CUpti_ActivitySynchronization2, returnValue);
SAME(cupti::ActivityCudaEvent, CUpti_ActivityCudaEvent2, deviceId);
SAME(cupti::ActivityCudaEvent, CUpti_ActivityCudaEvent2, deviceTimestamp);
#endif
#if CUDA_VERSION >= 13020
SAME(cupti::ActivityKernel, CUpti_ActivityKernel11, isDeviceLaunched);
SAME(cupti::ActivityKernel, CUpti_ActivityKernel11, priority);
#endif
#if CUDA_VERSION >= 13050
SAME_SIZE(cupti::ActivityKernel, CUpti_ActivityKernel13);
SAME(cupti::ActivityKernel, CUpti_ActivityKernel13, sourceGraphNodeId);
SAME_SIZE(cupti::ActivityMemcpy, CUpti_ActivityMemcpy7);
SAME(cupti::ActivityMemcpy, CUpti_ActivityMemcpy7, sourceGraphNodeId);
SAME_SIZE(cupti::ActivityMemset, CUpti_ActivityMemset5);
SAME(cupti::ActivityMemset, CUpti_ActivityMemset5, sourceGraphNodeId);
SAME_SIZE(cupti::ActivitySynchronization, CUpti_ActivitySynchronization2);
SAME_SIZE(cupti::ActivityCudaEvent, CUpti_ActivityCudaEvent3);
SAME(cupti::ActivityCudaEvent, CUpti_ActivityCudaEvent3, sourceGraphNodeId);
#endif

#define SAME_NUMBER(ours, theirs) static_assert(int{cupti::ours} == int{theirs})
SAME_NUMBER(kSuccess, CUPTI_SUCCESS);
SAME_NUMBER(kInvalidParameter, CUPTI_ERROR_INVALID_PARAMETER);
SAME_NUMBER(kMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME_NUMBER(kQueueEmpty, CUPTI_ERROR_QUEUE_EMPTY);
SAME_NUMBER(kInvalidKind, CUPTI_ERROR_INVALID_KIND);
SAME_NUMBER(kMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME_NUMBER(kMemset, CUPTI_ACTIVITY_KIND_MEMSET);
SAME_NUMBER(kKernel, CUPTI_ACTIVITY_KIND_KERNEL);
SAME_NUMBER(kConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME_NUMBER(kDriver, CUPTI_ACTIVITY_KIND_DRIVER);
SAME_NUMBER(kRuntime, CUPTI_ACTIVITY_KIND_RUNTIME);
SAME_NUMBER(kSynchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
SAME_NUMBER(kCudaEvent, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
SAME_NUMBER(kExternalCorrelation, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
SAME_NUMBER(kExternalKinds, CUPTI_EXTERNAL_CORRELATION_KIND_SIZE);
SAME_NUMBER(kDriverDomain, CUPTI_CB_DOMAIN_DRIVER_API);
SAME_NUMBER(kRuntimeDomain, CUPTI_CB_DOMAIN_RUNTIME_API);
SAME_NUMBER(kEventSynchronize, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
SAME_NUMBER(kStreamWaitEvent, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
SAME_NUMBER(kStreamSynchronize, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
SAME_NUMBER(kContextSynchronize, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
SAME_NUMBER(kHostToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
SAME_NUMBER(kDeviceToHost, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
SAME_NUMBER(kDeviceToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
SAME_NUMBER(kHostToHost, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
SAME_NUMBER(kPageable, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
SAME_NUMBER(kPinned, CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
SAME_NUMBER(kDeviceMemory, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
SAME_NUMBER(kComputeChannel, CUPTI_CHANNEL_TYPE_COMPUTE);
SAME_NUMBER(kCopyChannel, CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY);
SAME_NUMBER(kFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
static_assert(uint32_t{CUPTI_ACTIVITY_KIND_COUNT} <= cupti::kKinds &&
              cupti::kNotOfOne == static_cast<uint32_t>(CUPTI_SYNCHRONIZATION_INVALID_VALUE));
#define SAME_ID(id, name) static_assert(CUPTI_RUNTIME_TRACE_CBID_##name == (id));
GPUCAST_CUPTI_RUNTIME_FUNCTIONS(SAME_ID)
#undef SAME_ID
#define SAME_ID(id, name) static_assert(CUPTI_DRIVER_TRACE_CBID_##name == (id));
GPUCAST_CUPTI_DRIVER_FUNCTIONS(SAME_ID)
#undef SAME_ID
#endif

}  // namespace gpucast::vgpu

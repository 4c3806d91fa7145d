// CUDA runtime: devices, properties, errors, versions.
#include "src/vgpu/libs/cudart.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "src/vgpu/core/device_attributes.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/pools.h"
#include "src/vgpu/libs/error_names.h"

namespace gpucast::vgpu {
namespace {

thread_local int t_last_error = 0;

int attribute(int id) {
  int value = 0;
  device_attribute(id, &value);
  return value;
}

void fill_properties(cuda::DeviceProp* p, int device) {
  const DeviceProfile& card = profile();
  *p = {};
  std::memcpy(p->name, card.name, sizeof card.name);
  device_uuid(physical_device(device), p->uuid);
  p->totalGlobalMem = card.total_memory_bytes;
  p->sharedMemPerBlock = static_cast<size_t>(card.shared_memory_per_block_bytes);
  p->regsPerBlock = attribute(12);
  p->warpSize = attribute(10);
  p->memPitch = INT_MAX;
  p->maxThreadsPerBlock = attribute(1);
  for (int i = 0; i < 3; ++i) {
    p->maxThreadsDim[i] = attribute(2 + i);
    p->maxGridSize[i] = attribute(5 + i);
    p->maxTexture3D[i] = attribute(24 + i);
    p->maxTexture3DAlt[i] = attribute(47 + i);
    p->maxTexture2DLayered[i] = attribute(27 + i);
    p->maxTexture2DLinear[i] = attribute(70 + i);
    p->maxSurface3D[i] = attribute(58 + i);
    p->maxSurface2DLayered[i] = attribute(63 + i);
  }
  for (int i = 0; i < 2; ++i) {
    p->maxTexture2D[i] = attribute(22 + i);
    p->maxTexture2DMipmap[i] = attribute(73 + i);
    p->maxTexture2DGather[i] = attribute(45 + i);
    p->maxTexture1DLayered[i] = attribute(42 + i);
    p->maxTextureCubemapLayered[i] = attribute(53 + i);
    p->maxSurface2D[i] = attribute(56 + i);
    p->maxSurface1DLayered[i] = attribute(61 + i);
    p->maxSurfaceCubemapLayered[i] = attribute(67 + i);
  }
  p->totalConstMem = static_cast<size_t>(attribute(9));
  p->major = card.compute_major;
  p->minor = card.compute_minor;
  p->textureAlignment = static_cast<size_t>(attribute(14));
  p->texturePitchAlignment = static_cast<size_t>(attribute(51));
  p->multiProcessorCount = card.multiprocessors;
  p->canMapHostMemory = 1;
  p->maxTexture1D = attribute(21);
  p->maxTexture1DMipmap = attribute(77);
  p->maxTextureCubemap = attribute(52);
  p->maxSurface1D = attribute(55);
  p->maxSurfaceCubemap = attribute(66);
  p->surfaceAlignment = static_cast<size_t>(attribute(30));
  p->concurrentKernels = 1;
  p->ECCEnabled = attribute(32);
  p->pciBusID = pci_bus(physical_device(device));
  p->pciDeviceID = attribute(34);
  p->pciDomainID = attribute(50);
  p->asyncEngineCount = attribute(40);
  p->unifiedAddressing = 1;
  p->memoryBusWidth = card.memory_bus_width_bits;
  p->l2CacheSize = attribute(38);
  p->persistingL2CacheMaxSize = attribute(108);
  p->maxThreadsPerMultiProcessor = card.max_threads_per_multiprocessor;
  p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = static_cast<size_t>(card.shared_memory_per_multiprocessor_bytes);
  p->regsPerMultiprocessor = card.registers_per_multiprocessor;
  p->managedMemory = attribute(83);
  p->pageableMemoryAccess = attribute(88);
  p->concurrentManagedAccess = attribute(89);
  p->computePreemptionSupported = attribute(90);
  p->canUseHostPointerForRegisteredMem = attribute(91);
  p->cooperativeLaunch = attribute(95);
  p->sharedMemPerBlockOptin = static_cast<size_t>(card.shared_memory_per_block_optin_bytes);
  p->maxBlocksPerMultiProcessor = card.max_blocks_per_multiprocessor;
  p->accessPolicyMaxWindowSize = attribute(109);
  p->reservedSharedMemPerBlock = static_cast<size_t>(attribute(111));
  p->hostRegisterSupported = attribute(99);
  p->sparseCudaArraySupported = attribute(112);
  p->timelineSemaphoreInteropSupported = attribute(114);
  p->memoryPoolsSupported = attribute(115);
  p->memoryPoolSupportedHandleTypes = static_cast<unsigned>(attribute(119));
  p->deferredMappingCudaArraySupported = attribute(121);
  p->ipcEventSupported = attribute(125);
  p->clusterLaunch = attribute(120);
#if GPUCAST_CUDA == 12
  p->clockRate = card.clock_khz;
  p->deviceOverlap = 1;
  p->memoryClockRate = card.memory_clock_khz;
  p->maxTexture1DLinear = attribute(69);
  p->singleToDoublePrecisionPerfRatio = attribute(87);
  p->cooperativeMultiDeviceLaunch = attribute(96);
#else
  p->deviceNumaId = p->hostNumaId = -1;
#endif
}

}  // namespace

int cudart_return(int code) {
  if (code != cudaSuccess) t_last_error = code;
  return code;
}

int cudart_not_supported(const char* name) { return cudart_return(not_supported("cudart", name)); }

}  // namespace gpucast::vgpu

using namespace gpucast::vgpu;

// ---- Errors -------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaGetLastError() {
  const int error = t_last_error;
  t_last_error = 0;
  return error;
}
CUDART_API int cudaPeekAtLastError() { return t_last_error; }
CUDART_API const char* cudaGetErrorName(int error) {
  const CudaError& known = cuda_error(error);
  return known.runtime_name != nullptr ? known.runtime_name : known.driver_name;
}
CUDART_API const char* cudaGetErrorString(int error) { return cuda_error(error).text; }

// ---- Versions -----------------------------------------------------------------------------------------------------------------

CUDART_API int cudaDriverGetVersion(int* version) {
  if (version == nullptr) return cudart_return(cudaErrorInvalidValue);
  *version = profile().driver_version;
  return cudaSuccess;
}
CUDART_API int cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return cudart_return(cudaErrorInvalidValue);
  constexpr int kOldest = GPUCAST_CUDA == 12 ? 12040 : 13000;  // used if the profile names no version
  *version = profile().runtime_version / 1000 == GPUCAST_CUDA ? profile().runtime_version : kOldest;
  return cudaSuccess;
}

// ---- Devices --------------------------------------------------------------------------------------------------------------

CUDART_API int cudaGetDeviceCount(int* count) {
  if (count == nullptr) return cudart_return(cudaErrorInvalidValue);
  *count = device_count();
  return cudart_return(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
CUDART_API int cudaGetDevice(int* device) {
  if (device == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (device_count() == 0) return cudart_return(cudaErrorNoDevice);
  *device = current_device();
  return cudaSuccess;
}
CUDART_API int cudaSetDevice(int device) {
  if (device_count() == 0) return cudart_return(cudaErrorNoDevice);
  if (!set_current_device(device)) return cudart_return(cudaErrorInvalidDevice);
  context_activate();  // since CUDA 12
  return cudaSuccess;
}
CUDART_API int cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
CUDART_API int cudaChooseDevice(int* device, const cuda::DeviceProp*) { return cudaGetDevice(device); }
CUDART_API int cudaSetValidDevices(int*, int) { return cudaSuccess; }
CUDART_API int cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
CUDART_API int cudaGetDeviceFlags(unsigned* flags) {
  if (flags == nullptr) return cudart_return(cudaErrorInvalidValue);
  *flags = 0;
  return cudaSuccess;
}

CUDART_API int cudaGetDeviceProperties(cuda::DeviceProp* properties, int device) {
  if (properties == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(device)) return cudart_return(cudaErrorInvalidDevice);
#if GPUCAST_CUDA == 12
  // The name without a suffix is CUDA 11's. Its struct ends there.
  cuda::DeviceProp whole;
  fill_properties(&whole, device);
  std::memcpy(static_cast<void*>(properties), &whole, offsetof(cuda::DeviceProp, hostRegisterSupported));
#else
  fill_properties(properties, device);
#endif
  return cudaSuccess;
}
#if GPUCAST_CUDA == 12
CUDART_API int cudaGetDeviceProperties_v2(cuda::DeviceProp* properties, int device) {
  if (properties == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(device)) return cudart_return(cudaErrorInvalidDevice);
  fill_properties(properties, device);
  return cudaSuccess;
}
#endif

CUDART_API int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (value == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(device)) return cudart_return(cudaErrorInvalidDevice);
  if (attribute == kPciBusAttribute) {
    *value = pci_bus(physical_device(device));
    return cudaSuccess;
  }
  return cudart_return(device_attribute(attribute, value) ? cudaSuccess : cudaErrorInvalidValue);
}

CUDART_API int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return cudart_return(cudaErrorInvalidDevice);
  if (text == nullptr || length < static_cast<int>(kPciBusIdSize)) return cudart_return(cudaErrorInvalidValue);
  pci_bus_id(physical_device(device), text);
  return cudaSuccess;
}
CUDART_API int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  if (device == nullptr || text == nullptr) return cudart_return(cudaErrorInvalidValue);
  const int found = visible_device(physical_by_pci_bus_id(text));
  if (found < 0) return cudart_return(cudaErrorInvalidDevice);
  *device = found;
  return cudaSuccess;
}

CUDART_API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

CUDART_API int cudaDeviceSynchronize() {
  pools_synchronize();
  return cudart_return(device_synchronize());
}
CUDART_API int cudaDeviceReset() { return cudaSuccess; }

// Limits are only stored: they have no effect on what is counted here.
namespace {
size_t g_limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};
}
CUDART_API int cudaDeviceSetLimit(int limit, size_t value) {
  if (limit < 0 || limit >= static_cast<int>(std::size(g_limits))) return cudart_return(cudaErrorInvalidValue);
  g_limits[limit] = value;
  return cudaSuccess;
}
CUDART_API int cudaDeviceGetLimit(size_t* value, int limit) {
  if (value == nullptr || limit < 0 || limit >= static_cast<int>(std::size(g_limits))) return cudart_return(cudaErrorInvalidValue);
  *value = g_limits[limit];
  return cudaSuccess;
}
CUDART_API int cudaDeviceGetCacheConfig(int* config) {
  if (config == nullptr) return cudart_return(cudaErrorInvalidValue);
  *config = 0;
  return cudaSuccess;
}
CUDART_API int cudaDeviceSetCacheConfig(int) { return cudaSuccess; }
CUDART_API int cudaDeviceGetSharedMemConfig(int* config) {
  if (config == nullptr) return cudart_return(cudaErrorInvalidValue);
  *config = 1;  // banks of four bytes
  return cudaSuccess;
}
CUDART_API int cudaDeviceSetSharedMemConfig(int) { return cudaSuccess; }
CUDART_API int cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
CUDART_API int cudaDeviceFlushGPUDirectRDMAWrites(int, int) { return cudaSuccess; }

// ---- Peers ---------------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (can == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(device) || !is_device(peer)) return cudart_return(cudaErrorInvalidDevice);
  *can = can_access_peer(device, peer) ? 1 : 0;
  return cudaSuccess;
}
CUDART_API int cudaDeviceEnablePeerAccess(int peer, unsigned) { return cudart_return(change_peer_access(peer, true)); }
CUDART_API int cudaDeviceDisablePeerAccess(int peer) { return cudart_return(change_peer_access(peer, false)); }
CUDART_API int cudaDeviceGetP2PAttribute(int* value, int attribute, int device, int peer) {
  constexpr int kAccessSupported = 2;
  if (value == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(device) || !is_device(peer) || device == peer) return cudart_return(cudaErrorInvalidDevice);
  *value = attribute == kAccessSupported && can_access_peer(device, peer) ? 1 : 0;
  return cudaSuccess;
}

// ---- Profiler -------------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaProfilerStart() { return cudaSuccess; }
CUDART_API int cudaProfilerStop() { return cudaSuccess; }

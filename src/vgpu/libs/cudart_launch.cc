// CUDA runtime: registration and launch of kernels, occupancy, libraries, driver entry points.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/vgpu/core/device_attributes.h"
#include "src/vgpu/core/functions.h"
#include "src/vgpu/libs/cudart.h"

using namespace gpucast::vgpu;
using cuda::Dim3;

namespace {

int launch(const void* handle, Dim3 grid, Dim3 block, size_t shared_bytes, uint64_t stream, void** arguments) {
  Function function;
  StreamInfo info;
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  if (!find_function(handle, &function)) return cudart_return(cudaErrorInvalidDeviceFunction);
  if (!function.has_code) return cudart_return(cudaErrorNoKernelImageForDevice);
  // A card refuses these shapes. A program that reacts to the error must get the same error here.
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool empty = threads == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0;
  const DeviceProfile& card = profile();
  const int most_shared = std::max(card.shared_memory_per_block_bytes, card.shared_memory_per_block_optin_bytes);
  if (empty || threads > 1024 || block.z > 64 || grid.y > 65535 || grid.z > 65535 || shared_bytes > static_cast<size_t>(most_shared))
    return cudart_return(cudaErrorInvalidConfiguration);
  const unsigned grid_size[3] = {grid.x, grid.y, grid.z}, block_size[3] = {block.x, block.y, block.z};
  log_kernel(function.name, grid_size, block_size, shared_bytes, stream, {}, {}, false, handle);
  kernel_written(function.name, grid_size, arguments);
  return cudaSuccess;
}

// The arguments of `<<<...>>>`, kept for the function that the same thread calls next.
struct CallConfiguration {
  Dim3 grid, block;
  size_t shared_bytes;
  uint64_t stream;
};
thread_local CallConfiguration t_configuration;
thread_local bool t_configured = false;

}  // namespace

// ---- Registration: called by every module's start-up code ------------------------------------------------------------------------

CUDART_API void** __cudaRegisterFatBinary(const void* wrapper) { return register_fatbin(wrapper); }
CUDART_API void __cudaRegisterFatBinaryEnd(void**) {}
CUDART_API void __cudaUnregisterFatBinary(void** fatbin) { unregister_fatbin(fatbin); }
CUDART_API char __cudaInitModule(void**) { return 1; }
CUDART_API void __cudaRegisterFunction(void** fatbin, const char* handle, char*, const char* name, int thread_limit, void*, void*, void*,
                                       void*, int*) {
  register_function(fatbin, handle, name, thread_limit);
}
CUDART_API void __cudaRegisterVar(void** fatbin, char* handle, char*, const char* name, int, size_t size, int, int) {
  register_variable(fatbin, handle, name, size);
}
CUDART_API void __cudaRegisterManagedVar(void** fatbin, void** handle, char*, const char* name, int, size_t size, int, int) {
  register_variable(fatbin, handle, name, size);
}
CUDART_API void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

// ---- Launches -------------------------------------------------------------------------------------------------------------------

CUDART_API unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes, uint64_t stream) {
  t_configuration = {grid, block, shared_bytes, stream};
  t_configured = true;
  return 0;
}
CUDART_API int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes, uint64_t* stream) {
  if (!t_configured) return cudart_return(cudaErrorMissingConfiguration);
  t_configured = false;
  *grid = t_configuration.grid;
  *block = t_configuration.block;
  *shared_bytes = t_configuration.shared_bytes;
  *stream = t_configuration.stream;
  return cudaSuccess;
}
CUDART_API int cudaLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments, size_t shared_bytes, uint64_t stream) {
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
CUDART_API int cudaLaunchCooperativeKernel(const void* function, Dim3 grid, Dim3 block, void** arguments, size_t shared_bytes,
                                           uint64_t stream) {
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
CUDART_API int cudaLaunchKernelExC(const cuda::LaunchConfig* config, const void* function, void** arguments) {
  if (config == nullptr) return cudart_return(cudaErrorInvalidValue);
  return launch(function, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, arguments);
}

// In both forms of the API, a kernel's handle is the host function it was registered with.
CUDART_API int cudaGetKernel(const void** kernel, const void* function) {
  Function known;
  if (kernel == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!find_function(function, &known)) return cudart_return(cudaErrorInvalidDeviceFunction);
  *kernel = function;
  return cudaSuccess;
}
CUDART_API int cudaGetFuncBySymbol(const void** driver_function, const void* function) { return cudaGetKernel(driver_function, function); }
#if GPUCAST_CUDA == 13
CUDART_API int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;  // looked up at the launch
  return cudaSuccess;
}
CUDART_API int __cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared_bytes, uint64_t stream) {
  return launch(kernel, grid, block, shared_bytes, stream, arguments);
}
#endif

// ---- Attributes -------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaFuncGetAttributes(cuda::FuncAttributes* attributes, const void* function) {
  Function known;
  if (attributes == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!find_function(function, &known)) return cudart_return(cudaErrorInvalidDeviceFunction);
  if (!known.has_code) return cudart_return(cudaErrorNoKernelImageForDevice);
  *attributes = {};
  attributes->maxThreadsPerBlock = known.thread_limit != 0 ? known.thread_limit : 1024;
  const KernelResources kernel = kernel_resources(function);
  attributes->numRegs = kernel.registers > 0 ? kernel.registers : kAssumedRegisters;
  attributes->sharedSizeBytes = static_cast<size_t>(kernel.static_shared_bytes);
  attributes->localSizeBytes = static_cast<size_t>(kernel.local_bytes);
  attributes->ptxVersion = known.ptx_arch;
  attributes->binaryVersion = known.binary_arch;
  attributes->maxDynamicSharedSizeBytes = profile().shared_memory_per_block_bytes;
  attributes->preferredShmemCarveout = -1;
  return cudaSuccess;
}
CUDART_API int cudaFuncSetAttribute(const void* function, int attribute, int value) {
  constexpr int kMaxDynamicShared = 8;
  Function known;
  if (!find_function(function, &known)) return cudart_return(cudaErrorInvalidDeviceFunction);
  const bool too_much = attribute == kMaxDynamicShared && value > profile().shared_memory_per_block_optin_bytes;
  return cudart_return(too_much ? cudaErrorInvalidValue : cudaSuccess);
}
CUDART_API int cudaFuncSetCacheConfig(const void*, int) { return cudaSuccess; }
CUDART_API int cudaFuncSetSharedMemConfig(const void*, int) { return cudaSuccess; }
CUDART_API int cudaFuncGetName(const char** name, const void* function) {
  Function known;
  if (name == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!find_function(function, &known)) return cudart_return(cudaErrorInvalidDeviceFunction);
  *name = known.name;
  return cudaSuccess;
}

CUDART_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_threads,
                                                                      size_t shared_bytes, unsigned) {
  Function known;
  if (blocks == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!find_function(function, &known)) return cudart_return(cudaErrorInvalidDeviceFunction);
  *blocks = occupancy_blocks(kernel_resources(function), block_threads, shared_bytes);
  return cudaSuccess;
}
CUDART_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, shared_bytes, 0);
}
CUDART_API int cudaOccupancyAvailableDynamicSMemPerBlock(size_t* shared_bytes, const void*, int blocks, int) {
  if (shared_bytes == nullptr || blocks <= 0) return cudart_return(cudaErrorInvalidValue);
  const DeviceProfile& card = profile();
  const int reserved = card.compute_major >= 8 ? kReservedSharedBytes : 0;
  *shared_bytes = static_cast<size_t>(
      std::clamp(card.shared_memory_per_multiprocessor_bytes / blocks - reserved, 0, card.shared_memory_per_block_optin_bytes));
  return cudaSuccess;
}
CUDART_API int cudaOccupancyMaxPotentialClusterSize(int* size, const void*, const cuda::LaunchConfig*) {
  if (size == nullptr) return cudart_return(cudaErrorInvalidValue);
  *size = profile().compute_major >= 9 ? 8 : 1;
  return cudaSuccess;
}
CUDART_API int cudaOccupancyMaxActiveClusters(int* clusters, const void* function, const cuda::LaunchConfig* config) {
  if (clusters == nullptr || config == nullptr) return cudart_return(cudaErrorInvalidValue);
  const int threads = static_cast<int>(config->blockDim.x * config->blockDim.y * config->blockDim.z);
  *clusters = occupancy_blocks(kernel_resources(function), threads, config->dynamicSmemBytes) * profile().multiprocessors / 8;
  return cudaSuccess;
}

// ---- Host functions --------------------------------------------------------------------------------------------------------------

CUDART_API int cudaLaunchHostFunc(uint64_t stream, void (*function)(void*), void* data) {
  StreamInfo info;
  CaptureInfo capture;
  if (function == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  if (capture_info(stream, &capture) == kSuccess && capture.status == kCaptureActive)
    return cudart_return(capture_host_node(stream, {function, data}));
  call_host({function, data}, stream);
  return cudaSuccess;
}
CUDART_API int cudaStreamAddCallback(uint64_t stream, void (*callback)(uint64_t, int, void*), void* data, unsigned) {
  StreamInfo info;
  CaptureInfo capture;
  if (callback == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  if (capture_info(stream, &capture) == kSuccess && capture.status == kCaptureActive) return cudart_return(kCaptureUnsupported);
  struct Call {
    void (*callback)(uint64_t, int, void*);
    void* data;
    uint64_t stream;
  };
  const auto call_back = [](void* made) {
    const std::unique_ptr<Call> call(static_cast<Call*>(made));
    call->callback(call->stream, cudaSuccess, call->data);
  };
  call_host({call_back, new Call{callback, data, stream}}, stream);
  return cudaSuccess;
}

// ---- Libraries loaded at run time ----------------------------------------------------------------------------------------------------

#if GPUCAST_CUDA == 13
CUDART_API int cudaLibraryLoadData(uint64_t* library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
  if (library == nullptr || code == nullptr) return cudart_return(cudaErrorInvalidValue);
  *library = module_load(code);
  return cudaSuccess;
}
CUDART_API int cudaLibraryLoadFromFile(uint64_t* library, const char* path, void*, void**, unsigned, void*, void**, unsigned) {
  if (library == nullptr || path == nullptr) return cudart_return(cudaErrorInvalidValue);
  *library = module_load(nullptr);
  return cudaSuccess;
}
CUDART_API int cudaLibraryUnload(uint64_t library) {
  return cudart_return(module_unload(library) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
CUDART_API int cudaLibraryGetKernel(const void** kernel, uint64_t library, const char* name) {
  if (kernel == nullptr) return cudart_return(cudaErrorInvalidValue);
  return cudart_return(module_function(library, name, kernel) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
CUDART_API int cudaLibraryGetGlobal(void** address, size_t* size, uint64_t library, const char* name) {
  uint64_t place = 0;
  size_t room = 0;
  if (!module_variable(library, name, &place, &room)) return cudart_return(cudaErrorInvalidResourceHandle);
  if (address != nullptr) *address = reinterpret_cast<void*>(place);
  if (size != nullptr) *size = room;
  return cudaSuccess;
}
CUDART_API int cudaKernelSetAttributeForDevice(const void* kernel, int attribute, int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}
#endif

// ---- Driver functions by name: the driver library knows its own -----------------------------------------------------------------------

CUDART_API int cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version, unsigned long long flags,
                                                int* status) {
  constexpr int kFound = 0, kNotFound = 1;
  if (symbol == nullptr || function == nullptr) return cudart_return(cudaErrorInvalidValue);
  *function = nullptr;
  using GetProcAddress = int (*)(const char*, void**, int, uint64_t, int*);
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  const auto get = reinterpret_cast<GetProcAddress>(driver == nullptr ? nullptr : dlsym(driver, "cuGetProcAddress_v2"));
  if (get != nullptr) get(symbol, function, static_cast<int>(version), flags, nullptr);
  if (status != nullptr) *status = *function != nullptr ? kFound : kNotFound;
  // If the caller passes a place for the status, a missing symbol is not an error.
  return cudart_return(*function != nullptr || status != nullptr ? cudaSuccess : cudaErrorSymbolNotFound);
}
CUDART_API int cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags, int* status) {
  constexpr unsigned kBuiltFor = GPUCAST_CUDA == 12 ? 12040 : 13000;
  return cudaGetDriverEntryPointByVersion(symbol, function, kBuiltFor, flags, status);
}

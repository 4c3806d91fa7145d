// CUDA runtime: memory, copies, pools, pointers, symbols.
#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/functions.h"
#include "src/vgpu/core/pools.h"
#include "src/vgpu/libs/cudart.h"

using namespace gpucast::vgpu;

namespace {

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// The common check of copies from and to the device: the stream must exist.
int copy_on(void* to, const void* from, size_t size, int kind, uint64_t stream) {
  if (size == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr || kind < 0 || kind > 4) return cudart_return(cudaErrorInvalidValue);
  StreamInfo info;
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  copy(to, from, size, kind, stream);
  return cudaSuccess;
}

// Synchronous copies cannot be captured.
int copy_now(void* to, const void* from, size_t size, int kind) {
  if (const int problem = stream_synchronize(0)) return cudart_return(problem);
  return copy_on(to, from, size, kind, 0);
}

int copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int kind, uint64_t stream) {
  if (width > to_pitch || width > from_pitch) return cudart_return(cudaErrorInvalidValue);
  if (width == to_pitch && width == from_pitch) return copy_on(to, from, width * height, kind, stream);
  for (size_t row = 0; row < height; ++row) {
    const int code =
        copy_on(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

int copy_3d(const char* name, const cuda::Memcpy3DParms* p, uint64_t stream) {
  if (p == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (p->srcArray != nullptr || p->dstArray != nullptr) return cudart_not_supported(name);
  const auto at = [](const cuda::PitchedPtr& base, const cuda::Pos& pos, size_t slice) {
    return static_cast<char*>(base.ptr) + ((pos.z + slice) * base.ysize + pos.y) * base.pitch + pos.x;
  };
  for (size_t slice = 0; slice < p->extent.depth; ++slice) {
    const int code = copy_rows(at(p->dstPtr, p->dstPos, slice), p->dstPtr.pitch, at(p->srcPtr, p->srcPos, slice), p->srcPtr.pitch,
                               p->extent.width, p->extent.height, p->kind, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

int set_on(void* address, int value, size_t size, uint64_t stream) {
  if (size == 0) return cudaSuccess;
  if (address == nullptr) return cudart_return(cudaErrorInvalidValue);
  StreamInfo info;
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  fill(number(address), value, size, stream);
  return cudaSuccess;
}

int set_rows(void* address, size_t pitch, int value, size_t width, size_t height, uint64_t stream) {
  if (width == pitch) return set_on(address, value, width * height, stream);
  for (size_t row = 0; row < height; ++row)
    if (const int code = set_on(static_cast<char*>(address) + row * pitch, value, width, stream)) return code;
  return cudaSuccess;
}

}  // namespace

// ---- Allocation -----------------------------------------------------------------------------------------------------------------

CUDART_API int cudaMalloc(void** address, size_t size) {
  uint64_t place = 0;
  if (address == nullptr) return cudart_return(cudaErrorInvalidValue);
  const Status status = device_alloc(size, &place);
  *address = pointer(place);
  return cudart_return(status);
}

CUDART_API int cudaFree(void* address) {
  context_activate();  // programs call cudaFree(0) to create the context
  const uint64_t place = number(address);
  // A pool's memory first: it may start where the pool's own allocation starts.
  if (pool_free(place) == Status::ok) return cudaSuccess;
  if (place != 0) finish_all_work();
  if (device_free(place) == Status::ok) return cudaSuccess;
  return cudart_return(host_free(address));  // managed memory
}

CUDART_API int cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  if (address == nullptr || pitch == nullptr) return cudart_return(cudaErrorInvalidValue);
  constexpr size_t kAlignment = 512;
  *pitch = (width + kAlignment - 1) / kAlignment * kAlignment;
  return cudaMalloc(address, *pitch * height);
}

CUDART_API int cudaMalloc3D(cuda::PitchedPtr* place, cuda::Extent extent) {
  if (place == nullptr) return cudart_return(cudaErrorInvalidValue);
  place->xsize = extent.width;
  place->ysize = extent.height;
  return cudaMallocPitch(&place->ptr, &place->pitch, extent.width, extent.height * extent.depth);
}

// Managed memory is host memory here: programs read and write it on the host. It moves to the card page by page, so it is not counted.
CUDART_API int cudaMallocManaged(void** address, size_t size, unsigned) {
  if (address == nullptr || size == 0) return cudart_return(cudaErrorInvalidValue);
  *address = host_alloc(size);
  return cudart_return(*address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}
CUDART_API int cudaMemRangeGetAttribute(void* data, size_t size, int, const void*, size_t) {
  if (data == nullptr) return cudart_return(cudaErrorInvalidValue);
  std::memset(data, 0, size);
  return cudaSuccess;
}
#if GPUCAST_CUDA == 12
CUDART_API int cudaMemAdvise(const void*, size_t, int, int) { return cudaSuccess; }
CUDART_API int cudaMemAdvise_v2(const void*, size_t, int, cuda::MemLocation) { return cudaSuccess; }
CUDART_API int cudaMemPrefetchAsync(const void*, size_t, int, uint64_t) { return cudaSuccess; }
CUDART_API int cudaMemPrefetchAsync_v2(const void*, size_t, cuda::MemLocation, unsigned, uint64_t) { return cudaSuccess; }
#else
CUDART_API int cudaMemAdvise(const void*, size_t, int, cuda::MemLocation) { return cudaSuccess; }
CUDART_API int cudaMemPrefetchAsync(const void*, size_t, cuda::MemLocation, unsigned, uint64_t) { return cudaSuccess; }
#endif

CUDART_API int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const MemoryInfo info = memory_info();
  if (free_bytes != nullptr) *free_bytes = info.free_bytes;
  if (total_bytes != nullptr) *total_bytes = info.total_bytes;
  return cudaSuccess;
}

// ---- Host memory ----------------------------------------------------------------------------------------------------------------

CUDART_API int cudaHostAlloc(void** address, size_t size, unsigned) {
  if (address == nullptr) return cudart_return(cudaErrorInvalidValue);
  *address = host_alloc(size);
  return cudart_return(*address != nullptr || size == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}
CUDART_API int cudaMallocHost(void** address, size_t size) { return cudaHostAlloc(address, size, 0); }
CUDART_API int cudaFreeHost(void* address) { return address == nullptr ? cudaSuccess : cudart_return(host_free(address)); }
CUDART_API int cudaHostRegister(void* address, size_t size, unsigned) {
  if (address == nullptr || size == 0) return cudart_return(cudaErrorInvalidValue);
  return cudart_return(host_register(address, size) == Status::ok ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}
CUDART_API int cudaHostUnregister(void* address) {
  return cudart_return(host_unregister(address) == Status::ok ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
CUDART_API int cudaHostGetDevicePointer(void** device_address, void* address, unsigned) {
  Range range;
  if (device_address == nullptr || !find_host_range(address, &range)) return cudart_return(cudaErrorInvalidValue);
  *device_address = address;  // unified addressing
  return cudaSuccess;
}
CUDART_API int cudaHostGetFlags(unsigned* flags, void* address) {
  Range range;
  if (flags == nullptr || !find_host_range(address, &range)) return cudart_return(cudaErrorInvalidValue);
  *flags = 0;
  return cudaSuccess;
}

// ---- Copies ---------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaMemcpy(void* to, const void* from, size_t size, int kind) { return copy_now(to, from, size, kind); }
CUDART_API int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, uint64_t stream) {
  return copy_on(to, from, size, kind, stream);
}
CUDART_API int cudaMemcpyPeer(void* to, int, const void* from, int, size_t size) { return copy_now(to, from, size, 3); }
CUDART_API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, uint64_t stream) {
  return copy_on(to, from, size, 3, stream);
}
CUDART_API int cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int kind) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, 0);
}
CUDART_API int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int kind,
                                 uint64_t stream) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, stream);
}
CUDART_API int cudaMemcpy3D(const cuda::Memcpy3DParms* p) { return copy_3d("cudaMemcpy3D", p, 0); }
CUDART_API int cudaMemcpy3DAsync(const cuda::Memcpy3DParms* p, uint64_t stream) { return copy_3d("cudaMemcpy3DAsync", p, stream); }
#if GPUCAST_CUDA == 13
CUDART_API int cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* sizes, size_t count, void*, size_t*, size_t,
                                    uint64_t stream) {
  if (count != 0 && (to == nullptr || from == nullptr || sizes == nullptr)) return cudart_return(cudaErrorInvalidValue);
  for (size_t i = 0; i < count; ++i)
    if (const int code = copy_on(to[i], from[i], sizes[i], 4, stream)) return code;
  return cudaSuccess;
}
#endif

CUDART_API int cudaMemset(void* address, int value, size_t size) { return set_on(address, value, size, 0); }
CUDART_API int cudaMemsetAsync(void* address, int value, size_t size, uint64_t stream) { return set_on(address, value, size, stream); }
CUDART_API int cudaMemset2D(void* address, size_t pitch, int value, size_t width, size_t height) {
  return set_rows(address, pitch, value, width, height, 0);
}
CUDART_API int cudaMemset2DAsync(void* address, size_t pitch, int value, size_t width, size_t height, uint64_t stream) {
  return set_rows(address, pitch, value, width, height, stream);
}

// ---- Device variables ---------------------------------------------------------------------------------------------------------

CUDART_API int cudaGetSymbolAddress(void** address, const void* symbol) {
  uint64_t place = 0;
  size_t size = 0;
  if (address == nullptr || !find_variable(symbol, &place, &size)) return cudart_return(cudaErrorInvalidSymbol);
  *address = pointer(place);
  return cudaSuccess;
}
CUDART_API int cudaGetSymbolSize(size_t* size, const void* symbol) {
  uint64_t place = 0;
  if (size == nullptr || !find_variable(symbol, &place, size)) return cudart_return(cudaErrorInvalidSymbol);
  return cudaSuccess;
}
CUDART_API int cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t size, size_t offset, int kind, uint64_t stream) {
  uint64_t place = 0;
  size_t room = 0;
  if (!find_variable(symbol, &place, &room)) return cudart_return(cudaErrorInvalidSymbol);
  return copy_on(pointer(place + offset), from, size, kind, stream);
}
CUDART_API int cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset, int kind) {
  return cudaMemcpyToSymbolAsync(symbol, from, size, offset, kind, 0);
}
CUDART_API int cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t size, size_t offset, int kind, uint64_t stream) {
  uint64_t place = 0;
  size_t room = 0;
  if (!find_variable(symbol, &place, &room)) return cudart_return(cudaErrorInvalidSymbol);
  return copy_on(to, pointer(place + offset), size, kind, stream);
}
CUDART_API int cudaMemcpyFromSymbol(void* to, const void* symbol, size_t size, size_t offset, int kind) {
  return cudaMemcpyFromSymbolAsync(to, symbol, size, offset, kind, 0);
}

// ---- Pointers -------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaPointerGetAttributes(cuda::PointerAttributes* attributes, const void* address) {
  if (attributes == nullptr) return cudart_return(cudaErrorInvalidValue);
  *attributes = {};
  Range range;
  if (find_device_range(number(address), &range)) {
    attributes->type = 2;
    attributes->device = range.device;
    attributes->devicePointer = const_cast<void*>(address);
  } else if (find_host_range(address, &range)) {
    attributes->type = 1;
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(address);
  } else {
    attributes->type = 0;
    attributes->device = -2;
    attributes->hostPointer = const_cast<void*>(address);
  }
  return cudaSuccess;
}

// ---- Pools ----------------------------------------------------------------------------------------------------------------------

namespace {
std::array<std::atomic<uint64_t>, kMostDevices> g_current_pools{};  // by device; 0: the default one
uint64_t current_pool(int device) {
  const uint64_t pool = g_current_pools[static_cast<size_t>(device)];
  return pool != 0 ? pool : pool_default(device);
}
}  // namespace

CUDART_API int cudaDeviceGetDefaultMemPool(uint64_t* pool, int device) {
  if (pool == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(device)) return cudart_return(cudaErrorInvalidDevice);
  *pool = pool_default(device);
  return cudaSuccess;
}
CUDART_API int cudaDeviceGetMemPool(uint64_t* pool, int device) {
  if (pool == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(device)) return cudart_return(cudaErrorInvalidDevice);
  *pool = current_pool(device);
  return cudaSuccess;
}
CUDART_API int cudaDeviceSetMemPool(int device, uint64_t pool) {
  PoolUse use;
  if (!is_device(device) || pool_use(pool, &use) != Status::ok) return cudart_return(cudaErrorInvalidValue);
  g_current_pools[static_cast<size_t>(device)] = pool;
  return cudaSuccess;
}
CUDART_API int cudaMemPoolCreate(uint64_t* pool, const cuda::MemPoolProps* properties) {
  if (pool == nullptr || properties == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (!is_device(properties->location.id)) return cudart_return(cudaErrorInvalidDevice);
  *pool = pool_create(properties->location.id);
  return cudaSuccess;
}
CUDART_API int cudaMemPoolDestroy(uint64_t pool) {
  for (auto& current : g_current_pools) {
    uint64_t expected = pool;
    current.compare_exchange_strong(expected, 0);
  }
  return cudart_return(pool_destroy(pool));
}
CUDART_API int cudaMallocFromPoolAsync(void** address, size_t size, uint64_t pool, uint64_t stream) {
  StreamInfo info;
  if (address == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  uint64_t place = 0;
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  const Status status = pool_alloc(pool, size, &place);
  *address = pointer(place);
  return cudart_return(status);
}
CUDART_API int cudaMallocAsync(void** address, size_t size, uint64_t stream) {
  return cudaMallocFromPoolAsync(address, size, current_pool(current_device()), stream);
}
CUDART_API int cudaFreeAsync(void* address, uint64_t) { return cudaFree(address); }
CUDART_API int cudaMemPoolTrimTo(uint64_t pool, size_t keep) { return cudart_return(pool_trim(pool, keep)); }
CUDART_API int cudaMemPoolSetAccess(uint64_t, const cuda::MemAccessDesc*, size_t) { return cudaSuccess; }
CUDART_API int cudaMemPoolGetAccess(int* flags, uint64_t, cuda::MemLocation*) {
  if (flags == nullptr) return cudart_return(cudaErrorInvalidValue);
  *flags = 3;  // read and write
  return cudaSuccess;
}
CUDART_API int cudaMemPoolGetAttribute(uint64_t pool, int attribute, void* value) {
  PoolUse use;
  uint64_t threshold = 0;
  if (value == nullptr || pool_use(pool, &use) != Status::ok || pool_threshold(pool, &threshold) != Status::ok)
    return cudart_return(cudaErrorInvalidValue);
  const uint64_t values[] = {threshold, use.reserved_bytes, use.peak_reserved_bytes, use.used_bytes, use.peak_used_bytes};
  if (attribute >= 1 && attribute <= 3) {
    *static_cast<int*>(value) = 1;  // how blocks may be reused: in all ways
  } else if (attribute >= 4 && attribute <= 8) {
    *static_cast<uint64_t*>(value) = values[attribute - 4];
  } else {
    return cudart_return(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
CUDART_API int cudaMemPoolSetAttribute(uint64_t pool, int attribute, void* value) {
  if (value == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (attribute == 4) return cudart_return(pool_set_threshold(pool, *static_cast<uint64_t*>(value)));
  if (attribute == 6 || attribute == 8) return cudart_return(pool_reset_peaks(pool, attribute == 8, attribute == 6));
  return cudart_return(attribute >= 1 && attribute <= 3 ? cudaSuccess : cudaErrorInvalidValue);
}
#if GPUCAST_CUDA == 13
CUDART_API int cudaMemGetDefaultMemPool(uint64_t* pool, cuda::MemLocation* place, int) {
  return cudaDeviceGetDefaultMemPool(pool, place != nullptr ? place->id : 0);
}
CUDART_API int cudaMemGetMemPool(uint64_t* pool, cuda::MemLocation* place, int) {
  return cudaDeviceGetMemPool(pool, place != nullptr ? place->id : 0);
}
CUDART_API int cudaMemSetMemPool(cuda::MemLocation* place, int, uint64_t pool) {
  return cudaDeviceSetMemPool(place != nullptr ? place->id : 0, pool);
}
#endif

// ---- Sharing between processes: a handle names the process and the address; other processes have no such memory ------------------

CUDART_API int cudaIpcGetMemHandle(cuda::IpcHandle* handle, void* address) {
  Range range;
  if (handle == nullptr || !find_device_range(number(address), &range)) return cudart_return(cudaErrorInvalidValue);
  *handle = {};
  std::memcpy(handle->reserved, &range, sizeof range);
  return cudaSuccess;
}
CUDART_API int cudaIpcGetEventHandle(cuda::IpcHandle* handle, uint64_t event) {
  if (handle == nullptr) return cudart_return(cudaErrorInvalidValue);
  *handle = {};
  std::memcpy(handle->reserved, &event, sizeof event);
  return cudaSuccess;
}

// CUDA driver: memory, virtual memory management, copies, pools, pointers.
#include <linux/memfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "src/vgpu/core/pools.h"
#include "src/vgpu/libs/cuda_driver.h"

using namespace gpucast::vgpu;

namespace {

constexpr size_t kGranularityBytes = 2 << 20;

int copy_on(uint64_t to, uint64_t from, size_t size, int kind, uint64_t stream) {
  if (size == 0) return kSuccess;
  if (to == 0 || from == 0) return kInvalidValue;
  StreamInfo info;
  if (const int problem = stream_info(stream, &info)) return problem;
  copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size, kind, stream);
  return kSuccess;
}

int copy_now(uint64_t to, uint64_t from, size_t size, int kind) {
  if (const int problem = stream_synchronize(0)) return problem;
  return copy_on(to, from, size, kind, 0);
}

int set_on(uint64_t address, unsigned value, size_t value_bytes, size_t count, uint64_t stream) {
  if (count == 0) return kSuccess;
  if (address == 0) return kInvalidValue;
  StreamInfo info;
  if (const int problem = stream_info(stream, &info)) return problem;
  fill_pattern(address, value, value_bytes, count, stream);
  return kSuccess;
}

int set_rows(uint64_t address, size_t pitch, unsigned value, size_t value_bytes, size_t width, size_t height, uint64_t stream) {
  for (size_t row = 0; row < height; ++row)
    if (const int code = set_on(address + row * pitch, value, value_bytes, width, stream)) return code;
  return kSuccess;
}

}  // namespace

// ---- Allocation -----------------------------------------------------------------------------------------------------------------

CUDA_API int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  const MemoryInfo info = memory_info();
  if (free_bytes != nullptr) *free_bytes = info.free_bytes;
  if (total_bytes != nullptr) *total_bytes = info.total_bytes;
  return kSuccess;
}
CUDA_ALSO(cuMemGetInfo, cuMemGetInfo_v2, size_t*, size_t*);
CUDA_API int cuMemAlloc_v2(uint64_t* address, size_t size) {
  if (address == nullptr || size == 0) return kInvalidValue;
  return driver_code(device_alloc(size, address));
}
CUDA_ALSO(cuMemAlloc, cuMemAlloc_v2, uint64_t*, size_t);
CUDA_API int cuMemAllocPitch_v2(uint64_t* address, size_t* pitch, size_t width, size_t height, unsigned) {
  if (address == nullptr || pitch == nullptr) return kInvalidValue;
  constexpr size_t kAlignment = 512;
  *pitch = (width + kAlignment - 1) / kAlignment * kAlignment;
  return cuMemAlloc_v2(address, *pitch * height);
}
CUDA_ALSO(cuMemAllocPitch, cuMemAllocPitch_v2, uint64_t*, size_t*, size_t, size_t, unsigned);
CUDA_API int cuMemFree_v2(uint64_t address) {
  // A pool's memory first: it may start where the pool's own allocation starts.
  if (pool_free(address) == Status::ok) return kSuccess;
  if (address != 0) finish_all_work();
  if (device_free(address) == Status::ok) return kSuccess;
  return driver_code(host_free(reinterpret_cast<void*>(address)));  // managed memory
}
CUDA_ALSO(cuMemFree, cuMemFree_v2, uint64_t);
CUDA_API int cuMemGetAddressRange_v2(uint64_t* start, size_t* size, uint64_t address) {
  Range range;
  if (!find_device_range(address, &range) && !find_host_range(reinterpret_cast<void*>(address), &range)) return kNotFound;
  if (start != nullptr) *start = range.address;
  if (size != nullptr) *size = range.size_bytes;
  return kSuccess;
}
CUDA_ALSO(cuMemGetAddressRange, cuMemGetAddressRange_v2, uint64_t*, size_t*, uint64_t);

CUDA_API int cuMemHostAlloc(void** address, size_t size, unsigned) {
  if (address == nullptr || size == 0) return kInvalidValue;
  *address = host_alloc(size);
  return *address != nullptr ? kSuccess : kOutOfMemory;
}
CUDA_API int cuMemAllocHost_v2(void** address, size_t size) { return cuMemHostAlloc(address, size, 0); }
CUDA_ALSO(cuMemAllocHost, cuMemAllocHost_v2, void**, size_t);
CUDA_API int cuMemAllocManaged(uint64_t* address, size_t size, unsigned) {
  void* place = nullptr;
  const int code = cuMemHostAlloc(&place, size, 0);
  if (address != nullptr) *address = reinterpret_cast<uint64_t>(place);
  return code;
}
CUDA_API int cuMemFreeHost(void* address) { return driver_code(host_free(address)); }
CUDA_API int cuMemHostRegister_v2(void* address, size_t size, unsigned) {
  if (address == nullptr || size == 0) return kInvalidValue;
  return host_register(address, size) == Status::ok ? kSuccess : kHostMemoryAlreadyRegistered;
}
CUDA_ALSO(cuMemHostRegister, cuMemHostRegister_v2, void*, size_t, unsigned);
CUDA_API int cuMemHostUnregister(void* address) { return host_unregister(address) == Status::ok ? kSuccess : kHostMemoryNotRegistered; }
CUDA_API int cuMemHostGetDevicePointer_v2(uint64_t* device_address, void* address, unsigned) {
  Range range;
  if (device_address == nullptr || !find_host_range(address, &range)) return kInvalidValue;
  *device_address = reinterpret_cast<uint64_t>(address);
  return kSuccess;
}
CUDA_ALSO(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, uint64_t*, void*, unsigned);

// ---- Virtual memory management ----------------------------------------------------------------------------------------------------

CUDA_API int cuMemGetAllocationGranularity(size_t* granularity, const cuda::MemAllocationProp*, int) {
  if (granularity == nullptr) return kInvalidValue;
  *granularity = kGranularityBytes;
  return kSuccess;
}
CUDA_API int cuMemAddressReserve(uint64_t* address, size_t size, size_t alignment, uint64_t, unsigned long long) {
  return driver_code(address_reserve(size, alignment, address));
}
CUDA_API int cuMemAddressFree(uint64_t address, size_t size) { return driver_code(address_release(address, size)); }
CUDA_API int cuMemCreate(uint64_t* handle, size_t size, const cuda::MemAllocationProp* properties, unsigned long long) {
  constexpr int kOnDevice = 1, kFabric = 8;
  if (handle == nullptr || properties == nullptr || properties->location.type != kOnDevice) return kInvalidValue;
  if (!is_device(properties->location.id)) return kInvalidDevice;
  if (properties->requestedHandleTypes & kFabric) return kNotPermitted;  // like a machine without a fabric
  return driver_code(physical_create(properties->location.id, size, handle));
}
// A handle for other processes is a file that holds the size. Ranks pass it to each other through a socket (PyTorch's symmetric memory).
CUDA_API int cuMemExportToShareableHandle(void* shareable, uint64_t handle, int type, unsigned long long) {
  constexpr int kFileDescriptor = 1;
  const uint64_t size_bytes = physical_size_of(handle);
  if (shareable == nullptr || size_bytes == 0) return kInvalidValue;
  if (type != kFileDescriptor) return kNotPermitted;
  const auto file = static_cast<int>(syscall(SYS_memfd_create, "gpucast-memory", MFD_CLOEXEC));  // glibc has a name for it since 2.27
  if (file < 0 || write(file, &size_bytes, sizeof size_bytes) != sizeof size_bytes) return kOutOfMemory;
  *static_cast<int*>(shareable) = file;
  return kSuccess;
}
CUDA_API int cuMemImportFromShareableHandle(uint64_t* handle, void* shareable, int) {
  uint64_t size_bytes = 0;
  const auto file = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  if (pread(file, &size_bytes, sizeof size_bytes, 0) != sizeof size_bytes) return kInvalidValue;
  return driver_code(physical_import(current_device(), size_bytes, handle));
}
CUDA_API int cuMemRelease(uint64_t handle) { return driver_code(physical_release(handle)); }
CUDA_API int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, unsigned long long) {
  if (offset != 0) return kInvalidValue;  // must be zero by the driver's documentation
  return driver_code(physical_map(address, size, handle));
}
CUDA_API int cuMemUnmap(uint64_t address, size_t size) { return driver_code(physical_unmap(address, size)); }
CUDA_API int cuMemSetAccess(uint64_t address, size_t size, const cuda::MemAccessDesc*, size_t) {
  Range range;
  return size != 0 && find_device_range(address, &range) ? kSuccess : kInvalidValue;
}
CUDA_API int cuMemGetAccess(unsigned long long* flags, const cuda::MemLocation*, uint64_t address) {
  Range range;
  if (flags == nullptr || !find_device_range(address, &range)) return kInvalidValue;
  *flags = 3;  // read and write
  return kSuccess;
}
CUDA_API int cuMemGetAllocationPropertiesFromHandle(cuda::MemAllocationProp* properties, uint64_t handle) {
  const int device = physical_device_of(handle);
  if (properties == nullptr || device < 0) return kInvalidValue;
  *properties = {};
  properties->type = 1;                // pinned
  properties->location = {1, device};  // on the device
  return kSuccess;
}

// ---- Pools ------------------------------------------------------------------------------------------------------------------------

CUDA_API int cuMemAllocFromPoolAsync(uint64_t* address, size_t size, uint64_t pool, uint64_t) {
  return driver_code(pool_alloc(pool, size, address));
}
CUDA_API int cuMemAllocAsync(uint64_t* address, size_t size, uint64_t) {
  return driver_code(pool_alloc(pool_default(current_device()), size, address));
}
CUDA_API int cuMemFreeAsync(uint64_t address, uint64_t) { return cuMemFree_v2(address); }
CUDA_API int cuMemPoolCreate(uint64_t* pool, const cuda::MemPoolProps* properties) {
  if (pool == nullptr || properties == nullptr) return kInvalidValue;
  if (!is_device(properties->location.id)) return kInvalidDevice;
  *pool = pool_create(properties->location.id);
  return kSuccess;
}
CUDA_API int cuMemPoolDestroy(uint64_t pool) { return driver_code(pool_destroy(pool)); }
CUDA_API int cuMemPoolTrimTo(uint64_t pool, size_t keep) { return driver_code(pool_trim(pool, keep)); }
CUDA_API int cuMemPoolSetAccess(uint64_t, const cuda::MemAccessDesc*, size_t) { return kSuccess; }

// ---- Copies -----------------------------------------------------------------------------------------------------------------------

CUDA_API int cuMemcpy(uint64_t to, uint64_t from, size_t size) { return copy_now(to, from, size, 4); }
CUDA_API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, uint64_t stream) { return copy_on(to, from, size, 4, stream); }
CUDA_API int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) { return copy_now(to, reinterpret_cast<uint64_t>(from), size, 1); }
CUDA_ALSO(cuMemcpyHtoD, cuMemcpyHtoD_v2, uint64_t, const void*, size_t);
CUDA_API int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) { return copy_now(reinterpret_cast<uint64_t>(to), from, size, 2); }
CUDA_ALSO(cuMemcpyDtoH, cuMemcpyDtoH_v2, void*, uint64_t, size_t);
CUDA_API int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t size) { return copy_now(to, from, size, 3); }
CUDA_ALSO(cuMemcpyDtoD, cuMemcpyDtoD_v2, uint64_t, uint64_t, size_t);
CUDA_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, uint64_t stream) {
  return copy_on(to, reinterpret_cast<uint64_t>(from), size, 1, stream);
}
CUDA_ALSO(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, uint64_t, const void*, size_t, uint64_t);
CUDA_API int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, uint64_t stream) {
  return copy_on(reinterpret_cast<uint64_t>(to), from, size, 2, stream);
}
CUDA_ALSO(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void*, uint64_t, size_t, uint64_t);
CUDA_API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, uint64_t stream) { return copy_on(to, from, size, 3, stream); }
CUDA_ALSO(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, uint64_t, uint64_t, size_t, uint64_t);
CUDA_API int cuMemcpyPeer(uint64_t to, uint64_t, uint64_t from, uint64_t, size_t size) { return copy_now(to, from, size, 3); }
CUDA_API int cuMemcpyPeerAsync(uint64_t to, uint64_t, uint64_t from, uint64_t, size_t size, uint64_t stream) {
  return copy_on(to, from, size, 3, stream);
}

CUDA_API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, uint64_t stream) {
  return set_on(to, value, 1, count, stream);
}
CUDA_API int cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, uint64_t stream) {
  return set_on(to, value, 2, count, stream);
}
CUDA_API int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, uint64_t stream) { return set_on(to, value, 4, count, stream); }
CUDA_API int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count) { return set_on(to, value, 1, count, 0); }
CUDA_API int cuMemsetD16_v2(uint64_t to, unsigned short value, size_t count) { return set_on(to, value, 2, count, 0); }
CUDA_API int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) { return set_on(to, value, 4, count, 0); }
CUDA_ALSO(cuMemsetD8, cuMemsetD8_v2, uint64_t, unsigned char, size_t);
CUDA_ALSO(cuMemsetD16, cuMemsetD16_v2, uint64_t, unsigned short, size_t);
CUDA_ALSO(cuMemsetD32, cuMemsetD32_v2, uint64_t, unsigned, size_t);
CUDA_API int cuMemsetD2D8_v2(uint64_t to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return set_rows(to, pitch, value, 1, width, height, 0);
}
CUDA_API int cuMemsetD2D8Async(uint64_t to, size_t pitch, unsigned char value, size_t width, size_t height, uint64_t stream) {
  return set_rows(to, pitch, value, 1, width, height, stream);
}
CUDA_API int cuMemsetD2D32_v2(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height) {
  return set_rows(to, pitch, value, 4, width, height, 0);
}
CUDA_API int cuMemsetD2D32Async(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height, uint64_t stream) {
  return set_rows(to, pitch, value, 4, width, height, stream);
}

// ---- Pointers -----------------------------------------------------------------------------------------------------------------------

CUDA_API int cuPointerGetAttribute(void* data, int attribute, uint64_t address) {
  Range range;
  const bool on_device = find_device_range(address, &range);
  if (data == nullptr) return kInvalidValue;
  if (!on_device && !find_host_range(reinterpret_cast<void*>(address), &range)) return kInvalidValue;
  const auto give = [data](auto value) {
    std::memcpy(data, &value, sizeof value);
    return kSuccess;
  };
  switch (attribute) {
    case 1:  // context
      return give(primary_context(on_device ? range.device : current_device()));
    case 2:  // where: host, device
      return give(on_device ? 2u : 1u);
    case 3:  // device address
      return give(address);
    case 4:  // host address
      return on_device ? kInvalidValue : give(address);
    case 6:  // synchronous copies
      return give(0);
    case 7:  // an id of the buffer
      return give(range.address);
    case 8:  // managed
      return give(0u);
    case 9:  // device
      return give(on_device ? range.device : current_device());
    case 10:  // can be shared by cudaIpc
      return give(on_device ? 1u : 0u);
    case 11:
      return give(range.address);
    case 12:
      return give(range.size_bytes);
    case 13:  // mapped
      return give(1u);
    case 14:  // handle types for sharing
      return give(uint64_t{0});
    case 15:  // GPUDirect
      return give(0u);
    case 16:  // read and write
      return give(3u);
    case 17:  // pool
      return give(uint64_t{0});
    default:
      return kInvalidValue;
  }
}
CUDA_API int cuPointerGetAttributes(unsigned count, int* attributes, void** data, uint64_t address) {
  if (attributes == nullptr || data == nullptr) return kInvalidValue;
  for (unsigned i = 0; i < count; ++i)
    if (cuPointerGetAttribute(data[i], attributes[i], address) != kSuccess && data[i] != nullptr) std::memset(data[i], 0, sizeof(int));
  return kSuccess;
}
CUDA_API int cuPointerSetAttribute(const void*, int, uint64_t) { return kSuccess; }

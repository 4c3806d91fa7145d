// CUDA driver: start, devices, contexts, errors, functions by name.
#include <dlfcn.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "src/vgpu/core/device_attributes.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/pools.h"
#include "src/vgpu/libs/cuda_driver.h"
#include "src/vgpu/libs/error_names.h"

using namespace gpucast::vgpu;

CUDA_API int cuInit(unsigned flags) {
  profile();
  return flags == 0 ? kSuccess : kInvalidValue;
}
CUDA_API int cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = profile().driver_version;
  return kSuccess;
}
CUDA_API int cuGetErrorString(int error, const char** text) {
  if (text == nullptr) return kInvalidValue;
  const bool known = cuda_error(error).driver_name != nullptr;
  *text = known ? cuda_error(error).text : nullptr;
  return known ? kSuccess : kInvalidValue;
}
CUDA_API int cuGetErrorName(int error, const char** name) {
  if (name == nullptr) return kInvalidValue;
  *name = cuda_error(error).driver_name;
  return *name != nullptr ? kSuccess : kInvalidValue;
}
// The driver's error log, new in CUDA 13: nothing is ever written to it.
CUDA_API int cuLogsRegisterCallback(void (*)(void*, int, char*, size_t), void*, uint64_t* handle) {
  if (handle != nullptr) *handle = 1;
  return kSuccess;
}
CUDA_API int cuLogsUnregisterCallback(uint64_t) { return kSuccess; }
CUDA_API int cuProfilerStart() { return kSuccess; }
CUDA_API int cuProfilerStop() { return kSuccess; }

// ---- Device -----------------------------------------------------------------------------------------------------------------

CUDA_API int cuDeviceGetCount(int* count) {
  if (count == nullptr) return kInvalidValue;
  *count = device_count();
  return kSuccess;
}
CUDA_API int cuDeviceGet(int* device, int ordinal) {
  if (device == nullptr) return kInvalidValue;
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
CUDA_API int cuDeviceGetName(char* name, int length, int device) {
  if (name == nullptr || length <= 0) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(length), "%s", profile().name);
  return kSuccess;
}
CUDA_API int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  if (uuid == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  device_uuid(physical_device(device), uuid);
  return kSuccess;
}
CUDA_ALSO(cuDeviceGetUuid, cuDeviceGetUuid_v2, unsigned char*, int);
CUDA_API int cuDeviceTotalMem_v2(size_t* size, int device) {
  if (size == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  *size = profile().total_memory_bytes;
  return kSuccess;
}
CUDA_ALSO(cuDeviceTotalMem, cuDeviceTotalMem_v2, size_t*, int);
CUDA_API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (value == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  if (attribute == kPciBusAttribute) {
    *value = pci_bus(physical_device(device));
    return kSuccess;
  }
  return device_attribute(attribute, value) ? kSuccess : kInvalidValue;
}
CUDA_API int cuDeviceComputeCapability(int* major, int* minor, int device) {
  if (major == nullptr || minor == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  *major = profile().compute_major;
  *minor = profile().compute_minor;
  return kSuccess;
}
CUDA_API int cuDeviceGetProperties(cuda::DevProp* p, int device) {
  if (p == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  const auto value = [](int id) {
    int result = 0;
    device_attribute(id, &result);
    return result;
  };
  *p = {value(1),
        {value(2), value(3), value(4)},
        {value(5), value(6), value(7)},
        value(8),
        value(9),
        value(10),
        value(11),
        value(12),
        value(13),
        value(14)};
  return kSuccess;
}
CUDA_API int cuDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return kInvalidDevice;
  if (text == nullptr || length < static_cast<int>(kPciBusIdSize)) return kInvalidValue;
  pci_bus_id(physical_device(device), text);
  return kSuccess;
}
CUDA_API int cuDeviceGetByPCIBusId(int* device, const char* text) {
  if (device == nullptr || text == nullptr) return kInvalidValue;
  const int found = visible_device(physical_by_pci_bus_id(text));
  if (found < 0) return kInvalidDevice;
  *device = found;
  return kSuccess;
}
CUDA_API int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (can == nullptr) return kInvalidValue;
  if (!is_device(device) || !is_device(peer)) return kInvalidDevice;
  *can = can_access_peer(device, peer) ? 1 : 0;
  return kSuccess;
}
CUDA_API int cuDeviceGetDefaultMemPool(uint64_t* pool, int device) {
  if (pool == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  *pool = pool_default(device);
  return kSuccess;
}
CUDA_ALSO(cuDeviceGetMemPool, cuDeviceGetDefaultMemPool, uint64_t*, int);

// ---- Contexts: each device has a primary one. Once in use, every thread has it ---------------------------------------------------

namespace {
// The contexts that a thread has pushed. The top one gives the current device; under them all is the choice of cudaSetDevice.
struct PushedContext {
  uint64_t context;
  int device_before;
};
thread_local std::vector<PushedContext> t_contexts;
unsigned g_context_flags = 0;
size_t g_limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};

uint64_t current_context() {
  if (!t_contexts.empty() && t_contexts.back().context == 0) return 0;
  if (!t_contexts.empty()) return primary_context(current_device());
  return context_active(current_device()) ? primary_context(current_device()) : 0;
}
}  // namespace

CUDA_API int cuDevicePrimaryCtxRetain(uint64_t* context, int device) {
  if (context == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  context_activate_on(device);
  *context = primary_context(device);
  return kSuccess;
}
CUDA_API int cuDevicePrimaryCtxRelease_v2(int device) { return is_device(device) ? kSuccess : kInvalidDevice; }
CUDA_ALSO(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, int);
CUDA_API int cuDevicePrimaryCtxReset_v2(int device) { return is_device(device) ? kSuccess : kInvalidDevice; }
CUDA_ALSO(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, int);
CUDA_API int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  if (!is_device(device)) return kInvalidDevice;
  g_context_flags = flags;
  return kSuccess;
}
CUDA_ALSO(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, int, unsigned);
CUDA_API int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (!is_device(device)) return kInvalidDevice;
  if (flags != nullptr) *flags = g_context_flags;
  if (active != nullptr) *active = context_active(device) ? 1 : 0;
  return kSuccess;
}

CUDA_API int cuCtxPushCurrent_v2(uint64_t context) {
  const int device = device_of_context(context);
  if (context != 0 && device < 0) return kInvalidContext;
  t_contexts.push_back({context, current_device()});
  if (device >= 0) set_current_device(device);
  return kSuccess;
}
CUDA_ALSO(cuCtxPushCurrent, cuCtxPushCurrent_v2, uint64_t);
CUDA_API int cuCtxPopCurrent_v2(uint64_t* context) {
  if (context != nullptr) *context = current_context();
  if (t_contexts.empty()) return kInvalidContext;
  set_current_device(t_contexts.back().device_before);
  t_contexts.pop_back();
  return kSuccess;
}
CUDA_ALSO(cuCtxPopCurrent, cuCtxPopCurrent_v2, uint64_t*);
CUDA_API int cuCtxSetCurrent(uint64_t context) {
  if (!t_contexts.empty()) cuCtxPopCurrent_v2(nullptr);
  return context != 0 ? cuCtxPushCurrent_v2(context) : kSuccess;
}
CUDA_API int cuCtxGetCurrent(uint64_t* context) {
  if (context == nullptr) return kInvalidValue;
  *context = current_context();
  return kSuccess;
}

namespace {
// A context created by the program is an alias of the primary one: memory and streams belong to the card anyway.
int create_context(uint64_t* context, unsigned flags, int device) {
  if (context == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  context_activate_on(device);
  g_context_flags = flags;
  *context = primary_context(device);
  return cuCtxPushCurrent_v2(*context);
}
}  // namespace

CUDA_API int cuCtxCreate_v2(uint64_t* context, unsigned flags, int device) { return create_context(context, flags, device); }
CUDA_ALSO(cuCtxCreate, cuCtxCreate_v2, uint64_t*, unsigned, int);
CUDA_API int cuCtxCreate_v3(uint64_t* context, void*, int, unsigned flags, int device) { return create_context(context, flags, device); }
CUDA_API int cuCtxCreate_v4(uint64_t* context, void*, unsigned flags, int device) { return create_context(context, flags, device); }
CUDA_API int cuCtxDestroy_v2(uint64_t context) {
  while (!t_contexts.empty() && t_contexts.back().context == context) cuCtxPopCurrent_v2(nullptr);
  std::erase_if(t_contexts, [context](const PushedContext& pushed) { return pushed.context == context; });
  return kSuccess;
}
CUDA_ALSO(cuCtxDestroy, cuCtxDestroy_v2, uint64_t);
CUDA_API int cuCtxGetDevice(int* device) {
  if (device == nullptr) return kInvalidValue;
  if (current_context() == 0) return kInvalidContext;
  *device = current_device();
  return kSuccess;
}
CUDA_API int cuCtxGetDevice_v2(int* device, uint64_t) { return cuCtxGetDevice(device); }
CUDA_API int cuCtxGetFlags(unsigned* flags) {
  if (flags == nullptr) return kInvalidValue;
  *flags = g_context_flags;
  return kSuccess;
}
CUDA_API int cuCtxSetFlags(unsigned flags) {
  g_context_flags = flags;
  return kSuccess;
}
CUDA_API int cuCtxGetId(uint64_t, unsigned long long* id) {
  if (id == nullptr) return kInvalidValue;
  *id = 1;
  return kSuccess;
}
CUDA_API int cuCtxGetApiVersion(uint64_t, unsigned* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 3020;
  return kSuccess;
}
CUDA_API int cuCtxSynchronize() {
  pools_synchronize();
  return device_synchronize();
}
CUDA_API int cuCtxSynchronize_v2(uint64_t) { return cuCtxSynchronize(); }
CUDA_API int cuCtxGetLimit(size_t* value, int limit) {
  if (value == nullptr || limit < 0 || limit >= static_cast<int>(std::size(g_limits))) return kInvalidValue;
  *value = g_limits[limit];
  return kSuccess;
}
CUDA_API int cuCtxSetLimit(int limit, size_t value) {
  if (limit < 0 || limit >= static_cast<int>(std::size(g_limits))) return kInvalidValue;
  g_limits[limit] = value;
  return kSuccess;
}
CUDA_API int cuCtxGetCacheConfig(int* config) {
  if (config == nullptr) return kInvalidValue;
  *config = 0;
  return kSuccess;
}
CUDA_API int cuCtxSetCacheConfig(int) { return kSuccess; }
CUDA_API int cuCtxGetSharedMemConfig(int* config) {
  if (config == nullptr) return kInvalidValue;
  *config = 1;
  return kSuccess;
}
CUDA_API int cuCtxSetSharedMemConfig(int) { return kSuccess; }
CUDA_API int cuCtxResetPersistingL2Cache() { return kSuccess; }
CUDA_API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}
CUDA_API int cuCtxEnablePeerAccess(uint64_t peer, unsigned) {
  const int device = device_of_context(peer);
  return device < 0 ? kInvalidContext : change_peer_access(device, true);
}
CUDA_API int cuCtxDisablePeerAccess(uint64_t peer) {
  const int device = device_of_context(peer);
  return device < 0 ? kInvalidContext : change_peer_access(device, false);
}

// ---- Functions by name --------------------------------------------------------------------------------------------------------

namespace {

// The CUDA release since which the plain name means the version with this suffix. For other names: since before CUDA 11.
struct NewestSuffix {
  const char* name;
  int suffix, version;
};
constexpr NewestSuffix kSince[] = {
    {"cuCtxCreate", 3, 11040},
    {"cuCtxCreate", 4, 12050},
    {"cuCtxGetDevice", 2, 13000},
    {"cuCtxSynchronize", 2, 13000},
    {"cuEventElapsedTime", 2, 12080},
    {"cuGetProcAddress", 2, 12000},
    {"cuGraphAddDependencies", 2, 12030},
    {"cuGraphAddKernelNode", 2, 12000},
    {"cuGraphAddNode", 2, 12030},
    {"cuGraphExecKernelNodeSetParams", 2, 12000},
    {"cuGraphExecUpdate", 2, 12000},
    {"cuGraphGetEdges", 2, 12030},
    {"cuGraphKernelNodeGetParams", 2, 12000},
    {"cuGraphKernelNodeSetParams", 2, 12000},
    {"cuGraphNodeGetDependencies", 2, 12030},
    {"cuGraphNodeGetDependentNodes", 2, 12030},
    {"cuGraphRemoveDependencies", 2, 12030},
    {"cuMemAdvise", 2, 12020},
    {"cuMemPrefetchAsync", 2, 12020},
    {"cuMemcpy3DBatchAsync", 2, 13000},
    {"cuMemcpyBatchAsync", 2, 13000},
    {"cuStreamBatchMemOp", 2, 11070},
    {"cuStreamGetCaptureInfo", 2, 11030},
    {"cuStreamGetCaptureInfo", 3, 12030},
    {"cuStreamGetCtx", 2, 12050},
    {"cuStreamUpdateCaptureDependencies", 2, 12030},
};

bool suits(const std::string& name, int suffix, int version) {
  for (const NewestSuffix& since : kSince)
    if (name == since.name && suffix == since.suffix) return version >= since.version;
  return true;
}

void* own_symbol(const std::string& name) {
  static void* const kSelf = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&cuInit), &info) != 0 ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  }();
  return kSelf == nullptr ? nullptr : dlsym(kSelf, name.c_str());
}

}  // namespace

CUDA_API int cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t, int* status) {
  constexpr int kNewestSuffix = 4, kFound = 0, kMissing = 1;
  if (symbol == nullptr || function == nullptr) return kInvalidValue;
  const std::string name = symbol;
  *function = nullptr;
  if (name == "cuGraphInstantiate" && version >= 12000) {
    *function = own_symbol("cuGraphInstantiateWithFlags");  // the plain name now means this function
  }
  for (int suffix = kNewestSuffix; suffix >= 2 && *function == nullptr; --suffix)
    if (suits(name, suffix, version)) *function = own_symbol(name + "_v" + std::to_string(suffix));
  if (*function == nullptr) *function = own_symbol(name);
  if (status != nullptr) *status = *function != nullptr ? kFound : kMissing;
  return *function != nullptr ? kSuccess : kNotFound;
}
CUDA_API int cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
CUDA_API int cuGetExportTable(const void** table, const void*) {
  if (table != nullptr) *table = nullptr;
  return kNotFound;
}

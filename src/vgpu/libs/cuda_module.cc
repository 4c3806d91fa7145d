// CUDA driver: modules, kernels, launches, occupancy, tensor maps.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "src/vgpu/core/device_attributes.h"
#include "src/vgpu/core/functions.h"
#include "src/vgpu/core/launch_numbers.h"
#include "src/vgpu/core/launch_values.h"
#include "src/vgpu/libs/cuda_driver.h"

using namespace gpucast::vgpu;

namespace {

// Arguments of a kernel that may be device addresses.
std::vector<uint64_t> pointers_of(const KernelResources& kernel, void* const* arguments) {
  std::vector<uint64_t> out;
  for (size_t i = 0; arguments != nullptr && i < 64; ++i) {
    if ((kernel.wide_parameters >> i & 1) == 0 || arguments[i] == nullptr) continue;
    out.push_back(0);
    std::memcpy(&out.back(), arguments[i], sizeof out.back());
  }
  return out;
}

// All arguments of a kernel, in the layout that its code reads.
std::string parameters_of(const std::vector<gpucast::KernelParameter>* places, void* const* arguments) {
  std::string out;
  for (size_t i = 0; arguments != nullptr && places != nullptr && i < places->size(); ++i) {
    const auto [offset, size] = (*places)[i];
    if (out.size() < size_t{offset} + size) out.resize(size_t{offset} + size);
    if (arguments[i] != nullptr) std::memcpy(out.data() + offset, arguments[i], size);
  }
  return out;
}

int launch(const void* handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes, uint64_t stream,
           void* const* arguments) {
  Function function;
  StreamInfo info;
  if (!find_function(handle, &function)) return kInvalidHandle;
  if (const int problem = stream_info(stream, &info)) return problem;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (threads == 0 || threads > 1024 || grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return kInvalidValue;
  const DeviceProfile& card = profile();
  if (shared_bytes > static_cast<unsigned>(std::max(card.shared_memory_per_block_bytes, card.shared_memory_per_block_optin_bytes)))
    return kInvalidValue;
  const std::vector<uint64_t> pointers = pointers_of(function.resources, arguments);
  const std::string parameters = function.code != nullptr ? parameters_of(function.parameters, arguments) : std::string();
  const std::vector<LaunchValuesRef> values = function.code != nullptr ? values_at(pointers) : std::vector<LaunchValuesRef>();
  const CompiledLaunch compiled = {pointers, parameters, function.code, values};
  log_kernel(function.name, grid, block, shared_bytes, stream, function.resources, compiled, true);
  note_stored_numbers(function.name, grid, block, shared_bytes, compiled);
  device_written();
  return kSuccess;
}

int attribute_of(int* value, int attribute, const void* handle) {
  Function function;
  if (value == nullptr) return kInvalidValue;
  if (!find_function(handle, &function)) return kInvalidHandle;
  switch (attribute) {
    case 0:
      *value = function.thread_limit != 0 ? function.thread_limit : 1024;
      return kSuccess;
    case 1:
      *value = kernel_resources(handle).static_shared_bytes;
      return kSuccess;
    case 3:
      *value = kernel_resources(handle).local_bytes;
      return kSuccess;
    case 4:
      *value = kernel_resources(handle).registers;
      if (*value == 0) *value = kAssumedRegisters;
      return kSuccess;
    case 5:
      *value = function.ptx_arch;
      return kSuccess;
    case 6:
      *value = function.binary_arch;
      return kSuccess;
    case 8:
      *value = profile().shared_memory_per_block_bytes;
      return kSuccess;
    case 9:
      *value = -1;
      return kSuccess;
    default:
      *value = 0;
      return attribute >= 0 && attribute <= 16 ? kSuccess : kInvalidValue;
  }
}

int set_attribute(const void* handle, int attribute, int value) {
  constexpr int kMaxDynamicShared = 8;
  Function function;
  if (!find_function(handle, &function)) return kInvalidHandle;
  return attribute == kMaxDynamicShared && value > profile().shared_memory_per_block_optin_bytes ? kInvalidValue : kSuccess;
}

}  // namespace

// ---- Modules --------------------------------------------------------------------------------------------------------------------

CUDA_API int cuModuleLoadData(uint64_t* module, const void* image) {
  if (module == nullptr || image == nullptr) return kInvalidValue;
  *module = module_load(image);
  return kSuccess;
}
CUDA_API int cuModuleLoadDataEx(uint64_t* module, const void* image, unsigned, int*, void**) { return cuModuleLoadData(module, image); }
CUDA_API int cuModuleLoadFatBinary(uint64_t* module, const void* image) { return cuModuleLoadData(module, image); }
CUDA_API int cuModuleLoad(uint64_t* module, const char* path) {
  if (module == nullptr || path == nullptr) return kInvalidValue;
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  // Triton's cache keeps the PTX in the same folder as the machine code.
  constexpr std::string_view kEnding = ".cubin";
  std::string ptx_path(path);
  if (ptx_path.ends_with(kEnding)) ptx_path.replace(ptx_path.size() - kEnding.size(), kEnding.size(), ".ptx");
  std::ifstream ptx(ptx_path == path ? "" : ptx_path, std::ios::binary);
  *module = module_load_file(std::string{std::istreambuf_iterator<char>(file), {}}, std::string{std::istreambuf_iterator<char>(ptx), {}});
  return kSuccess;
}
CUDA_API int cuModuleUnload(uint64_t module) { return module_unload(module) ? kSuccess : kInvalidHandle; }
CUDA_API int cuModuleGetLoadingMode(int* mode) {
  if (mode == nullptr) return kInvalidValue;
  *mode = 2;  // lazy
  return kSuccess;
}
CUDA_API int cuModuleGetFunction(const void** function, uint64_t module, const char* name) {
  if (function == nullptr || name == nullptr) return kInvalidValue;
  return module_function(module, name, function) ? kSuccess : kInvalidHandle;
}
CUDA_API int cuModuleGetGlobal_v2(uint64_t* address, size_t* size, uint64_t module, const char* name) {
  uint64_t place = 0;
  size_t room = 0;
  if (!module_variable(module, name, &place, &room)) return kInvalidHandle;
  if (address != nullptr) *address = place;
  if (size != nullptr) *size = room;
  return kSuccess;
}
CUDA_ALSO(cuModuleGetGlobal, cuModuleGetGlobal_v2, uint64_t*, size_t*, uint64_t, const char*);

CUDA_API int cuLibraryLoadData(uint64_t* library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
  return cuModuleLoadData(library, code);
}
CUDA_API int cuLibraryLoadFromFile(uint64_t* library, const char* path, void*, void**, unsigned, void*, void**, unsigned) {
  return cuModuleLoad(library, path);
}
CUDA_API int cuLibraryUnload(uint64_t library) { return cuModuleUnload(library); }
CUDA_API int cuLibraryGetKernel(const void** kernel, uint64_t library, const char* name) {
  return cuModuleGetFunction(kernel, library, name);
}
CUDA_API int cuLibraryGetModule(uint64_t* module, uint64_t library) {
  if (module == nullptr) return kInvalidValue;
  *module = library;
  return kSuccess;
}
CUDA_API int cuLibraryGetGlobal(uint64_t* address, size_t* size, uint64_t library, const char* name) {
  return cuModuleGetGlobal_v2(address, size, library, name);
}
CUDA_API int cuKernelGetFunction(const void** function, const void* kernel) {
  if (function == nullptr) return kInvalidValue;
  *function = kernel;
  return kSuccess;
}

// The linked image can be loaded only by our own cuModuleLoad.
CUDA_API int cuLinkCreate_v2(unsigned, int*, void**, uint64_t* state) {
  if (state == nullptr) return kInvalidValue;
  *state = module_load(nullptr);
  return kSuccess;
}
CUDA_ALSO(cuLinkCreate, cuLinkCreate_v2, unsigned, int*, void**, uint64_t*);
CUDA_API int cuLinkAddData_v2(uint64_t, int, void*, size_t, const char*, unsigned, int*, void**) { return kSuccess; }
CUDA_ALSO(cuLinkAddData, cuLinkAddData_v2, uint64_t, int, void*, size_t, const char*, unsigned, int*, void**);
CUDA_API int cuLinkAddFile_v2(uint64_t, int, const char* path, unsigned, int*, void**) {
  return path != nullptr && access(path, R_OK) == 0 ? kSuccess : kFileNotFound;
}
CUDA_ALSO(cuLinkAddFile, cuLinkAddFile_v2, uint64_t, int, const char*, unsigned, int*, void**);
CUDA_API int cuLinkComplete(uint64_t, void** image, size_t* size) {
  static char linked[64] = "linked by the virtual GPU";
  if (image == nullptr) return kInvalidValue;
  *image = linked;
  if (size != nullptr) *size = sizeof linked;
  return kSuccess;
}
CUDA_API int cuLinkDestroy(uint64_t state) { return cuModuleUnload(state); }

// ---- Kernels --------------------------------------------------------------------------------------------------------------------

CUDA_API int cuFuncGetAttribute(int* value, int attribute, const void* function) { return attribute_of(value, attribute, function); }
CUDA_API int cuKernelGetAttribute(int* value, int attribute, const void* kernel, int) { return attribute_of(value, attribute, kernel); }
CUDA_API int cuFuncSetAttribute(const void* function, int attribute, int value) { return set_attribute(function, attribute, value); }
CUDA_API int cuKernelSetAttribute(int attribute, int value, const void* kernel, int) { return set_attribute(kernel, attribute, value); }
CUDA_API int cuFuncSetCacheConfig(const void*, int) { return kSuccess; }
CUDA_API int cuFuncSetSharedMemConfig(const void*, int) { return kSuccess; }
CUDA_API int cuKernelSetCacheConfig(const void*, int, int) { return kSuccess; }
CUDA_API int cuFuncGetName(const char** name, const void* function) {
  Function known;
  if (name == nullptr) return kInvalidValue;
  if (!find_function(function, &known)) return kInvalidHandle;
  *name = known.name;
  return kSuccess;
}
CUDA_API int cuKernelGetName(const char** name, const void* kernel) { return cuFuncGetName(name, kernel); }
CUDA_API int cuFuncIsLoaded(int* state, const void*) {
  if (state == nullptr) return kInvalidValue;
  *state = 1;
  return kSuccess;
}
CUDA_API int cuFuncLoad(const void*) { return kSuccess; }

CUDA_API int cuLaunchKernel(const void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned shared_bytes, uint64_t stream, void** arguments, void**) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
CUDA_API int cuLaunchCooperativeKernel(const void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                       unsigned block_y, unsigned block_z, unsigned shared_bytes, uint64_t stream, void** arguments) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
CUDA_API int cuLaunchKernelEx(const cuda::DriverLaunchConfig* config, const void* function, void** arguments, void**) {
  if (config == nullptr) return kInvalidValue;
  const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  return launch(function, grid, block, config->sharedMemBytes, config->hStream, arguments);
}
CUDA_API int cuLaunchHostFunc(uint64_t stream, void (*function)(void*), void* data) {
  StreamInfo info;
  CaptureInfo capture;
  if (function == nullptr) return kInvalidValue;
  if (const int problem = stream_info(stream, &info)) return problem;
  if (capture_info(stream, &capture) == kSuccess && capture.status == kCaptureActive) return capture_host_node(stream, {function, data});
  call_host({function, data}, stream);
  return kSuccess;
}

// ---- Occupancy --------------------------------------------------------------------------------------------------------------------

CUDA_API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_threads, size_t shared_bytes,
                                                                  unsigned) {
  if (blocks == nullptr) return kInvalidValue;
  *blocks = occupancy_blocks(kernel_resources(function), block_threads, shared_bytes);
  return kSuccess;
}
CUDA_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_threads, size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, shared_bytes, 0);
}
CUDA_API int cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid_size, int* block_size, const void* function,
                                                       size_t (*shared_of_block)(int), size_t shared_bytes, int limit, unsigned) {
  int most = 1024;
  if (grid_size == nullptr || block_size == nullptr) return kInvalidValue;
  if (const int problem = attribute_of(&most, 0, function)) return problem;
  if (limit > 0) most = std::min(most, limit);
  const KernelResources kernel = kernel_resources(function);
  int best_threads = 0;
  for (int threads = std::max(most / 32 * 32, std::min(most, 32)); threads > 0; threads -= 32) {
    const int blocks = occupancy_blocks(kernel, threads, shared_of_block != nullptr ? shared_of_block(threads) : shared_bytes);
    if (blocks * threads <= best_threads) continue;
    best_threads = blocks * threads;
    *block_size = threads;
    *grid_size = blocks * profile().multiprocessors;
  }
  return best_threads > 0 ? kSuccess : kInvalidValue;
}
CUDA_API int cuOccupancyMaxPotentialBlockSize(int* grid_size, int* block_size, const void* function, size_t (*shared_of_block)(int),
                                              size_t shared_bytes, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function, shared_of_block, shared_bytes, limit, 0);
}
CUDA_API int cuOccupancyMaxActiveClusters(int* clusters, const void* function, const cuda::DriverLaunchConfig* config) {
  if (clusters == nullptr || config == nullptr) return kInvalidValue;
  const int threads = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
  *clusters = occupancy_blocks(kernel_resources(function), threads, config->sharedMemBytes) * profile().multiprocessors / 8;
  return kSuccess;
}
CUDA_API int cuOccupancyMaxPotentialClusterSize(int* size, const void*, const cuda::DriverLaunchConfig*) {
  if (size == nullptr) return kInvalidValue;
  *size = profile().compute_major >= 9 ? 8 : 1;
  return kSuccess;
}

// ---- Tensor maps: 128 bytes that only kernels read -----------------------------------------------------------------------------------

namespace {
int clear_tensor_map(void* map) {
  constexpr size_t kTensorMapBytes = 128;
  if (map == nullptr) return kInvalidValue;
  std::memset(map, 0, kTensorMapBytes);
  return kSuccess;
}
}  // namespace
CUDA_API int cuTensorMapEncodeTiled(void* map, int, unsigned, void*, const uint64_t*, const uint64_t*, const unsigned*, const unsigned*,
                                    int, int, int, int) {
  return clear_tensor_map(map);
}
CUDA_API int cuTensorMapEncodeIm2col(void* map, int, unsigned, void*, const uint64_t*, const uint64_t*, const int*, const int*, unsigned,
                                     unsigned, const unsigned*, int, int, int, int) {
  return clear_tensor_map(map);
}
CUDA_API int cuTensorMapReplaceAddress(void* map, void*) { return map == nullptr ? kInvalidValue : kSuccess; }

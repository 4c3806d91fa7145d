// Kernels and device variables by handle: those that nvcc's start-up code registers by host pointer, and those of
// modules loaded at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

struct Function {
  const char* name;           // mangled; valid as long as its module is loaded
  int thread_limit;           // __launch_bounds__, or 0
  int binary_arch;            // of the code a card of this profile would run: 86 for sm_86
  int ptx_arch;               // of the PTX that this code was made from
  KernelResources resources;  // of a module's machine code; of a library's: kernel_resources()
  bool has_code;              // false: built for other cards only, so launching it must fail
};

// A fat binary's registration. `wrapper` is what nvcc passes to __cudaRegisterFatBinary (may be null). Only noted down:
// importing PyTorch registers some twenty thousand kernels.
GPUCAST_VGPU_API void** register_fatbin(const void* wrapper);
GPUCAST_VGPU_API void unregister_fatbin(void** fatbin);
GPUCAST_VGPU_API void register_function(void** fatbin, const void* handle, const char* name, int thread_limit);
GPUCAST_VGPU_API void register_variable(void** fatbin, const void* handle, const char* name, size_t size_bytes);

GPUCAST_VGPU_API bool find_function(const void* handle, Function* function);
// What a kernel takes of a multiprocessor. A library's code is unpacked when first asked for. No registers: not known.
GPUCAST_VGPU_API KernelResources kernel_resources(const void* handle);
// The variable's place on the card, given to it when first asked for.
GPUCAST_VGPU_API bool find_variable(const void* handle, uint64_t* address, size_t* size_bytes);

// Modules loaded at run time (Triton, NVRTC, cudaLibraryLoad): whatever name is asked for is there.
GPUCAST_VGPU_API uint64_t module_load(const void* image);
GPUCAST_VGPU_API uint64_t module_load_file(std::string_view image);  // a file's, of which nothing is certain
GPUCAST_VGPU_API bool module_unload(uint64_t module);
GPUCAST_VGPU_API bool module_function(uint64_t module, const char* name, const void** handle);
GPUCAST_VGPU_API bool module_variable(uint64_t module, const char* name, uint64_t* address, size_t* size_bytes);

// Room for a module's variables: not part of what allocations can have.
uint64_t module_memory(size_t size_bytes);
void module_memory_free(uint64_t address);

// The code in a fat binary that a card of capability major.minor runs: machine code of the same major and the highest
// minor not above the card's, else the newest PTX not above it. Exposed for the tests.
struct FatbinChoice {
  int binary_arch = 0, ptx_arch = 0;
  bool has_any = false;  // for whatever card; false: not a fat binary that we can read
};
FatbinChoice choose_fatbin(const void* fatbin_data, int major, int minor);

}  // namespace gpucast::vgpu

// Kernels and device variables by handle. Start-up code of nvcc registers some by host pointer; the others belong to modules loaded at run
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/occupancy/cubin.h"
#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

struct Function {
  const char* name;                                // mangled; valid as long as its module is loaded
  int thread_limit;                                // __launch_bounds__, or 0
  int binary_arch;                                 // of the code that a card of this profile would run: 86 for sm_86
  int ptx_arch;                                    // of the PTX that this code was made from
  KernelResources resources;                       // filled in for a module's machine code; for a library's kernel use kernel_resources()
  const std::vector<KernelParameter>* parameters;  // of a module's kernel; valid as its name is; nullptr: not known
  const KernelCode* code;                          // of a module whose PTX is known; else nullptr
  bool has_code;                                   // false: built only for other cards, so a launch must fail
};

// Registers a fat binary. `wrapper` is the argument that nvcc passes to __cudaRegisterFatBinary (may be null). It is only noted here:
// importing PyTorch registers some twenty thousand kernels.
GPUCAST_VGPU_API void** register_fatbin(const void* wrapper);
GPUCAST_VGPU_API void unregister_fatbin(void** fatbin);
GPUCAST_VGPU_API void register_function(void** fatbin, const void* handle, const char* name, int thread_limit);
GPUCAST_VGPU_API void register_variable(void** fatbin, const void* handle, const char* name, size_t size_bytes);

GPUCAST_VGPU_API bool find_function(const void* handle, Function* function);
// A kernel's resources on a multiprocessor. A library's code is unpacked at the first call. No registers: not known.
GPUCAST_VGPU_API KernelResources kernel_resources(const void* handle);
// The variable's address on the card, assigned at the first call.
GPUCAST_VGPU_API bool find_variable(const void* handle, uint64_t* address, size_t* size_bytes);

// Modules loaded at run time (Triton, NVRTC, cudaLibraryLoad). Any name that a program looks up is found.
GPUCAST_VGPU_API uint64_t module_load(const void* image);
// `ptx`: what the machine code was made from; "": not known.
GPUCAST_VGPU_API uint64_t module_load_file(std::string_view image, std::string_view ptx = {});  // from a file, whose format is not certain
// The PTX of an image that may be loaded later.
void note_code(std::string_view image, std::string_view ptx);
GPUCAST_VGPU_API bool module_unload(uint64_t module);
GPUCAST_VGPU_API bool module_function(uint64_t module, const char* name, const void** handle);
GPUCAST_VGPU_API bool module_variable(uint64_t module, const char* name, uint64_t* address, size_t* size_bytes);

// Space for a module's variables. It does not reduce the memory left for allocations.
uint64_t module_memory(size_t size_bytes);
void module_memory_free(uint64_t address);

// The code in a fat binary that a card of capability major.minor runs. Machine code of the same major version comes first, with the highest
// minor version not above the card's; otherwise the newest PTX not above the card's. Public for the tests.
struct FatbinChoice {
  int binary_arch = 0, ptx_arch = 0;
  bool has_any = false;  // code for any card; false: not a fat binary that we can read
};
FatbinChoice choose_fatbin(const void* fatbin_data, int major, int minor);

}  // namespace gpucast::vgpu

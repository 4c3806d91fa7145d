// Virtual NVSHMEM: there are no other processing elements. Queries are allowed, and initialization is not supported. Functions that return
// addresses return none (the error code of a default would look like an address).
#include "src/vgpu/libs/call.h"

// NOLINTBEGIN(bugprone-macro-parentheses): a definition
#define NO_ADDRESS(Name)                            \
  GPUCAST_EXPORT void* Name() {                     \
    gpucast::vgpu::not_supported("nvshmem", #Name); \
    return nullptr;                                 \
  }
// NOLINTEND(bugprone-macro-parentheses)
NO_ADDRESS(nvshmem_malloc)
NO_ADDRESS(nvshmem_calloc)
NO_ADDRESS(nvshmem_align)
NO_ADDRESS(nvshmem_ptr)
NO_ADDRESS(nvshmemx_mc_ptr)
GPUCAST_EXPORT void nvshmem_free(void*) {}
GPUCAST_EXPORT void nvshmem_info_get_version(int* major, int* minor) {
  if (major) *major = 1;
  if (minor) *minor = 3;
}
// 0: not initialized.
GPUCAST_EXPORT int nvshmemid_init_status() { return 0; }
GPUCAST_EXPORT int nvshmemx_init_status() { return 0; }
GPUCAST_EXPORT int nvshmem_my_pe() { return 0; }
GPUCAST_EXPORT int nvshmem_n_pes() { return 1; }
GPUCAST_EXPORT int nvshmem_team_my_pe(int) { return 0; }
GPUCAST_EXPORT int nvshmem_team_n_pes(int) { return 1; }
GPUCAST_EXPORT void nvshmemid_hostlib_finalize() {}
GPUCAST_EXPORT void nvshmemx_hostlib_finalize() {}

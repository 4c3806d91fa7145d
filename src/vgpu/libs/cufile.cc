// Virtual cuFile: the driver opens and closes. Direct transfers between files and device memory are not supported, so callers use their
// ordinary path.
#include "src/vgpu/libs/call.h"

namespace {

// cuFile functions return two numbers: its own error and CUDA's.
struct Error {
  int error, cuda_error;
};

}  // namespace

GPUCAST_EXPORT Error cuFileDriverOpen() { return {0, 0}; }
GPUCAST_EXPORT Error cuFileDriverClose() { return {0, 0}; }
GPUCAST_EXPORT Error cuFileDriverClose_v2() { return {0, 0}; }
GPUCAST_EXPORT long cuFileUseCount() { return 1; }
GPUCAST_EXPORT Error cuFileGetVersion(int* version) {
  if (version) *version = 1000 * (gpucast::vgpu::profile().runtime_version / 1000 - 11) + 90;
  return {version ? 0 : gpucast::vgpu::not_supported("cufile", "cuFileGetVersion"), 0};
}
// Bytes moved, negative on failure.
GPUCAST_EXPORT long cuFileRead() { return -static_cast<long>(gpucast::vgpu::not_supported("cufile", "cuFileRead")); }
GPUCAST_EXPORT long cuFileWrite() { return -static_cast<long>(gpucast::vgpu::not_supported("cufile", "cuFileWrite")); }

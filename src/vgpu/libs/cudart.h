// What the files of the CUDA runtime (cudart*.cc) share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/streams.h"
#include "src/vgpu/libs/cuda_types.h"

#define CUDART_API extern "C" GPUCAST_VGPU_API

namespace gpucast::vgpu {

// cudaError_t. core/streams.h has most of the codes.
enum CudartError : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorOperatingSystem = 304,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorSymbolNotFound = 500,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessUnsupported = 217,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorMissingConfiguration = 52,
};

// Returns the code, and keeps an error for cudaGetLastError.
int cudart_return(int code);
inline int cudart_return(Status status) {
  return cudart_return(status == Status::ok              ? cudaSuccess
                       : status == Status::out_of_memory ? cudaErrorMemoryAllocation
                                                         : cudaErrorInvalidValue);
}
// Returns "not supported" and logs the name: for parts of a call that have no answer here.
int cudart_not_supported(const char* name);

}  // namespace gpucast::vgpu

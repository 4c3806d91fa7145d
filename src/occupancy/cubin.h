// Reads the resources of kernels from machine code. A cubin is an ELF file with notes in NVIDIA's format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/occupancy/kernel_resources.h"

namespace gpucast {

// The size of an image that a program passes as a pointer. The driver does not get the size either, and reads it from the image.
inline constexpr size_t kUnknownSize = SIZE_MAX;

// A parameter's place in the bytes of a launch's parameters.
struct KernelParameter {
  uint16_t offset = 0, size_bytes = 0;
};

using ParametersByKernel = std::map<std::string, std::vector<KernelParameter>>;

// By name; empty if `image` is no cubin, or refers to bytes outside of itself. `parameters` gets the parameters of each kernel that has
// some.
std::map<std::string, KernelResources> kernels_of_cubin(const void* image, size_t size_bytes = kUnknownSize,
                                                        ParametersByKernel* parameters = nullptr);

}  // namespace gpucast

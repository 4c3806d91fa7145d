// What machine code says of its kernels: a cubin is an ELF file with NVIDIA's own notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "src/occupancy/kernel_resources.h"

namespace gpucast {

// The size of an image that a program hands over in memory: the driver is not told it either.
inline constexpr size_t kUnknownSize = SIZE_MAX;

// By name; empty where `image` is no cubin, or one that points to what is not in it.
std::map<std::string, KernelResources> kernels_of_cubin(const void* image, size_t size_bytes = kUnknownSize);

}  // namespace gpucast

// What machine code says of its kernels: a cubin is an ELF file with NVIDIA's own notes.
#pragma once

#include <map>
#include <string>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

// By name; empty where `image` is no cubin. Its size is not known: only what its own header points to is read.
std::map<std::string, KernelResources> kernels_of_cubin(const void* image);

}  // namespace gpucast::vgpu

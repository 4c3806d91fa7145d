// NCCL's communicators of this process. Python finds the ranks of each (python/gpucast/groups.py).
#pragma once

#include <string>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

// NCCL_SPLIT_NOCOLOR. Of a communicator: it was not split from another. Other negative numbers are colours: PyTorch before 2.6 has them.
constexpr int kNoColor = -1;

// `name`: the same on all its ranks.
GPUCAST_VGPU_API void note_communicator(const std::string& name, int color);

}  // namespace gpucast::vgpu

extern "C" {
// One line for each communicator made so far: its name and colour. Valid until the next call.
GPUCAST_VGPU_API const char* gpucast_vgpu_communicators();
}

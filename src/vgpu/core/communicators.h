// NCCL's communicators of this process. Python finds the ranks of each (python/gpucast/groups.py).
#pragma once

#include <string>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

constexpr int kNoColor = -1;  // the communicator was not split from another

// `name`: the same on all its ranks.
GPUCAST_VGPU_API void note_communicator(const std::string& name, int color);

}  // namespace gpucast::vgpu

extern "C" {
// One line for each communicator made so far: its name and colour. Valid until the next call.
GPUCAST_VGPU_API const char* gpucast_vgpu_communicators();
}

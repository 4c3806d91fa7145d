// Kernel launches in a run with a clock. The launches of one operator share its time, so they wait in their thread until the operator has
// made the last one; then the clock gets them, with the times of their requests. Internal to the core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

void clock_launch(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes, uint64_t stream,
                  const KernelResources& resources, const CompiledLaunch& compiled, bool driver, const void* function);

// The clock or the graph gets the launches that wait in this thread. Everything whose order with launches matters calls it first: other
// work, events, waits, the begin and end of captures. Must be called without a lock of the core.
GPUCAST_VGPU_API void submit_held_launches();

}  // namespace gpucast::vgpu

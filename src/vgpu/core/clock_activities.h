// Records what a profiler sees of a run with a clock (activities.h). Internal to the core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/time/gpu_timeline.h"
#include "src/vgpu/core/activities.h"
#include "src/vgpu/core/clock_state.h"

namespace gpucast::vgpu {

// The launch of an executable graph that this thread is carrying out.
struct GraphLaunch {
  uint32_t correlation = 0;  // 0: none
  uint64_t exec = 0;
};
GraphLaunch& current_graph_launch();

uint32_t next_correlation();
// For a call that submits no work and that only a profiler sees. 0: no profiler records, or the call is part of a graph's launch.
uint32_t correlation_if_recorded();

// Call with the clock's lock held. Does nothing unless a profiler records. `place` nullptr: the current device.
void record_call(Clock& clock, ActivityKind kind, uint32_t correlation, const char* function, bool driver, double from_ns, double to_ns,
                 const StreamPlace* place = nullptr, uint64_t event = 0);

}  // namespace gpucast::vgpu

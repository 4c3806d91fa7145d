// The host's part of an observed step: without the wait for the loader, and what is known of its speed when nobody observes.
#pragma once

#include <cstdint>

#include "gpucast/trace.h"
#include "src/work/step_operations.h"

namespace gpucast {

// How long the program waited for its loader between two moments, in the clock's and in CPU time.
struct LoaderWait {
  int64_t wall_us = 0, cpu_us = 0, batches = 0;
};
LoaderWait loader_wait(const Trace& trace, int64_t begin_us, int64_t end_us);

// Moves the times of a step from `begin_us` to `end_us` as if each batch had been there, and keeps where each batch was taken.
void remove_loader_wait(const Trace& trace, int64_t begin_us, int64_t end_us, StepOperations* step);

// Uses the CPU time of the process where it is shorter than the clock's time: then other programs worked on this machine, too.
// `observed_ns`: StepOperations::host_ns.
HostObservation observe_host(const Trace& trace, double observed_ns);

}  // namespace gpucast

// The host's time in an observed step: without the wait for the loader, and with the figures that show how long it is when not observed.
#pragma once

#include <cstdint>

#include "gpucast/trace.h"
#include "src/work/step_operations.h"

namespace gpucast {

// How long the program waited for its loader between two moments, in clock time and in CPU time.
struct LoaderWait {
  int64_t wall_us = 0, cpu_us = 0, batches = 0;
};
LoaderWait loader_wait(const Trace& trace, int64_t begin_us, int64_t end_us);

// Changes the times of a step from `begin_us` to `end_us` as if each batch had been ready, and records where each batch was taken.
void remove_loader_wait(const Trace& trace, int64_t begin_us, int64_t end_us, StepOperations* step);

// Uses the process's CPU time where it is shorter than clock time: then other programs ran on this machine, too.
// `observed_ns`: StepOperations::host_ns. `pieces`: of work that the observed step submitted.
HostObservation observe_host(const Trace& trace, double observed_ns, size_t pieces);

}  // namespace gpucast

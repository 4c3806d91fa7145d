// How far each rank of a session is on its clock. Internal to the core.
//
// A process with a clock keeps its position in SESSION/positions, which all processes of the session map. It has handed over everything
// that its card reached up to that time (clock_ranks.h).
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace gpucast::vgpu {

// Nanoseconds of the machine's monotonic clock, with the host's skipped waits.
void set_position(int64_t ns);
// 0: this process has none.
int64_t position_of(pid_t process);

}  // namespace gpucast::vgpu

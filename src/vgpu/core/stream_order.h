// The operations that order the work of streams. They go to the clock, or to the log in a run without a clock. Internal to the core. Events
// inside graphs have their own numbers, and count as events here.
#pragma once

#include <cstdint>

namespace gpucast::vgpu {

void order_event_record(uint64_t event, uint64_t stream, bool timed = false);
void order_stream_wait(uint64_t stream, uint64_t event);
void order_host_wait_stream(uint64_t stream);
void order_host_wait_event(uint64_t event);
void order_host_wait_device();
// The work between these two calls belongs to one launch of an executable graph.
void order_graph_begin(uint64_t exec, uint64_t stream);
void order_graph_end(uint64_t stream);

}  // namespace gpucast::vgpu

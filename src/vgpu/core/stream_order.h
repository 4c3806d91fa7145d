// What orders the work of streams goes to the clock; in a run without one to the log, for whoever reads it. Internal to the core.
// Events that graphs bring have numbers of their own, and count as events here.
#pragma once

#include <cstdint>

namespace gpucast::vgpu {

void order_event_record(uint64_t event, uint64_t stream);
void order_stream_wait(uint64_t stream, uint64_t event);
void order_host_wait_stream(uint64_t stream);
void order_host_wait_event(uint64_t event);
void order_host_wait_device();
// Work between them belongs to one launch of an executable graph.
void order_graph_begin(uint64_t exec, uint64_t stream);
void order_graph_end(uint64_t stream);

}  // namespace gpucast::vgpu

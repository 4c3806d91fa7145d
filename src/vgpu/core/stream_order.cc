#include "src/vgpu/core/stream_order.h"

#include <string>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/log.h"

namespace gpucast::vgpu {
namespace {

// The first number of a "host_wait" line.
enum class Awaited : uint64_t { stream = 0, event = 1, device = 2 };

void log_order(const char* kind, uint64_t first, uint64_t second) {
  log_timed("[\"" + std::string(kind) + "\"," + std::to_string(first) + "," + std::to_string(second) + "]");
}
void log_host_wait(Awaited awaited, uint64_t handle) { log_order("host_wait", static_cast<uint64_t>(awaited), handle); }

}  // namespace

void order_event_record(uint64_t event, uint64_t stream, bool timed) {
  has_clock_now() ? clock_record(event, stream, timed) : log_order("event_record", event, stream);
}
void order_stream_wait(uint64_t stream, uint64_t event) {
  has_clock_now() ? clock_stream_wait(stream, event) : log_order("stream_wait", stream, event);
}
void order_host_wait_stream(uint64_t stream) { has_clock_now() ? clock_wait_stream(stream) : log_host_wait(Awaited::stream, stream); }
void order_host_wait_event(uint64_t event) { has_clock_now() ? clock_wait_event(event) : log_host_wait(Awaited::event, event); }
void order_host_wait_device() { has_clock_now() ? clock_wait_device() : log_host_wait(Awaited::device, 0); }
void order_graph_begin(uint64_t exec, uint64_t stream) {
  has_clock_now() ? clock_begin_graph(exec, stream) : log_order("graph", 1, stream);
}
void order_graph_end(uint64_t stream) { has_clock_now() ? clock_end_graph() : log_order("graph", 0, stream); }

}  // namespace gpucast::vgpu

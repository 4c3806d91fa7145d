// The log: lines of the capture file's virtual GPU section, in memory until they are written. Internal to the core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/graphs.h"

namespace gpucast::vgpu {

// Appends one line (JSON text, without the line's end) to the log of the current device. Each device has a log of its own.
void log_line(std::string_view line);
void log_line_of(int device, std::string_view line);
// The same for work on a device: the line, which ends with ']', gets the time as a last element (nanoseconds since the log's "clock"
// record); a "thread" line comes before it where another thread logged last.
void log_timed(std::string_view line, std::string_view behind = {});
// The same for work on a stream: a stream that is being captured keeps the line in its graph instead.
void log_work(std::string_view line, uint64_t stream, GraphNodeType node_type);
// In a run with a clock, in the place of a line: the work goes to the clock, or to the graph of a stream that is being captured. True: to
// the graph.
bool clock_work(const ClockWork& work, uint64_t stream, GraphNodeType node_type, const char* function, bool driver = false);

// Where and when something is asked for that is carried out later, and the line that says so of the work in the next line.
struct LogMoment {
  int64_t unix_ns = 0;
  uint64_t thread = 0;
};
LogMoment log_moment();
void log_captured_at(const LogMoment& moment);

// The line of a kernel launch. `pointers`: arguments that may be device addresses; those that are stand in the line.
GPUCAST_VGPU_API std::string kernel_line(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                                         uint64_t stream, const KernelResources& resources = {}, std::span<const uint64_t> pointers = {});

// A JSON string, quotes included. Bytes that are no UTF-8 become '?'.
void append_json_string(std::string& out, std::string_view text);

// Device operations so far: the virtual clock that event times are made of.
void count_operation();
uint64_t operations();

}  // namespace gpucast::vgpu

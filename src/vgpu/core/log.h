// The log: lines of the capture file's virtual GPU section. They stay in memory until they are written. Internal to the core.
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

// Appends one line (JSON text, without the end of line) to the log of the current device. Each device has its own log.
void log_line(std::string_view line);
void log_line_of(int device, std::string_view line);
// The same for work on a device. The line ends with ']' and gets the time as its last element (nanoseconds since the log's "clock" record).
// If another thread logged last, a "thread" line comes first.
void log_timed(std::string_view line, std::string_view behind = {});
// The same for work on a stream. If the stream is being captured, its graph keeps the line instead.
void log_work(std::string_view line, uint64_t stream, GraphNodeType node_type);
// Replaces log_work in a run with a clock: the work goes to the clock, or to the graph of a stream that is being captured. Returns true if
// it went to the graph.
bool clock_work(const ClockWork& work, uint64_t stream, GraphNodeType node_type, const char* function, bool driver = false);

// The time and thread of a submission that is carried out later, and the line that gives them to the work in the next line.
struct LogMoment {
  int64_t unix_ns = 0;
  uint64_t thread = 0;
};
LogMoment log_moment();
void log_captured_at(const LogMoment& moment);

// The log line of a kernel launch. `pointers`: arguments that may be device addresses; the line keeps those that are.
GPUCAST_VGPU_API std::string kernel_line(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                                         uint64_t stream, const KernelResources& resources = {}, const CompiledLaunch& compiled = {});

// Appends a JSON string with its quotes. Bytes that are not UTF-8 become '?'.
void append_json_string(std::string& out, std::string_view text);

// The number of device operations so far: the virtual clock for the times of events.
void count_operation();
uint64_t operations();

}  // namespace gpucast::vgpu

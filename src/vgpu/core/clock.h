// The card's clock: in a run with one, work takes the time that the time model says, and the host waits for it. Internal to the core.
//
// Times are nanoseconds since the clock's start, on the host's own time, which runs on as the machine's does and is moved on by what the
// host waits for: by waiting (real time), or by setting it forward (warp). GPUs' work is played by src/time/gpu_timeline. How long a
// launch or call takes is asked of `gpucast run`, once for each kind of launch, over a socket of the session.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "src/time/gpu_timeline.h"
#include "src/vgpu/core/activities.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/host_time.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

// A launch, a library call, a copy or a fill with its duration.
struct ClockWork {
  GpuTimeline::Work work;
  Activity activity{};  // what a profiler sees, but for times, stream and correlation
};

bool has_clock_now();  // false as long as the profile was not read
ClockWork clock_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                       const KernelResources& resources);
ClockWork clock_call(const char* library, const char* name, std::string_view arguments_json);
ClockWork clock_copy(int kind, size_t size_bytes, bool pageable = false);
ClockWork clock_fill(size_t size_bytes);

// The API function by which the host asks.
void clock_submit(const ClockWork& work, uint64_t stream, const char* function, bool driver = false);
// What is submitted in between belongs to one launch.
void clock_begin_graph(uint64_t exec, uint64_t stream);
void clock_end_graph();
void clock_record(uint64_t event, uint64_t stream);
void clock_stream_wait(uint64_t stream, uint64_t event);
void clock_forget(uint64_t event);
// Called in a thread of the clock's own, once all that was asked of the stream before is done; who waits for the stream waits for it too.
void clock_call_host(HostFunction host, uint64_t stream);
void clock_wait_stream(uint64_t stream);
void clock_wait_event(uint64_t event);
void clock_wait_device();
bool clock_stream_done(uint64_t stream);
bool clock_event_done(uint64_t event);
double clock_event_ns(uint64_t event);  // below 0: it was not recorded, or is not done

// For tests: a clock instead of the profile's; `ask` answers what a server would.
void start_clock(ClockMode mode, std::function<std::string(const std::string& question)> ask, int64_t call_ns = 0);
void stop_clock();

void lock_clock();
void unlock_clock();

}  // namespace gpucast::vgpu

extern "C" {
// By how much the host's time is ahead of the machine's clock, in nanoseconds; in a run that is warped the difference is what was not
// waited. A place that is always there.
GPUCAST_VGPU_API const int64_t* gpucast_vgpu_time_ahead_ns();
// Sets the host's time back: a wait that would not have been one.
GPUCAST_VGPU_API void gpucast_vgpu_set_back(int64_t ns);
}

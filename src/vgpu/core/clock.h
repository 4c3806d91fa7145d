// The card's clock. In a run with a clock, GPU work takes the time that the time model predicts, and the host waits for it. Internal to the
// core.
//
// Times are nanoseconds since the clock's start, in the host's time. The host's time runs with the machine's clock. When the host has to
// wait, it either really waits (real time) or its time is set forward (warp). src/time/gpu_timeline simulates the GPUs' work. `gpucast run`
// answers how long a launch or call takes, over a socket of the session; the clock sends it one question for each kind of launch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/time/gpu_timeline.h"
#include "src/vgpu/core/activities.h"
#include "src/vgpu/core/clock_ranks.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/host_time.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

// A launch, a library call, a copy or a fill with its duration.
struct ClockWork {
  GpuTimeline::Work work;
  Activity activity{};                    // what a profiler sees; times, stream and correlation are filled in later
  std::shared_ptr<const RankWork> ranks;  // nullptr: it does not wait for other ranks
};

bool has_clock_now();  // false until the profile is read
// A kernel's launch, without its duration.
ClockWork clock_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                       const KernelResources& resources);
GpuTimeline::Work clock_kernel_by_threads(const Activity& launch);
// A launch whose code is known. Unset: it could not be counted.
std::optional<GpuTimeline::Work> clock_code(const Activity& launch, const CompiledLaunch& compiled);
// All kernels of an operator together (running_operators.h), whose first is `first`. Unset: nothing of it is on the card.
std::optional<GpuTimeline::Work> clock_operator(std::string_view written, const Activity& first, size_t launches, bool begun);
ClockWork clock_call(const char* library, const char* name, std::string_view arguments_json);
// Calls of NCCL that run as one kernel. `calls_json`: [[name, arguments], ...]. `ranks`: its board and messages.
ClockWork clock_communication(const char* name, const std::string& calls_json, RankWork ranks);
ClockWork clock_copy(int kind, size_t size_bytes, bool pageable = false);
ClockWork clock_fill(size_t size_bytes);

// `function`: the API function that submits the work.
void clock_submit(const ClockWork& work, uint64_t stream, const char* function, bool driver = false);
// The work submitted between these two calls belongs to one launch.
void clock_begin_graph(uint64_t exec, uint64_t stream);
void clock_end_graph();
void clock_record(uint64_t event, uint64_t stream, bool timed);  // `timed`: the stream writes the time, which takes a while
void clock_stream_wait(uint64_t stream, uint64_t event);
void clock_forget(uint64_t event);
// The function is called in the clock's own thread once all earlier work of the stream is done. A wait for the stream also waits for it.
void clock_call_host(HostFunction host, uint64_t stream);
void clock_wait_stream(uint64_t stream);
void clock_wait_event(uint64_t event);
void clock_wait_device();
bool clock_stream_done(uint64_t stream);
bool clock_event_done(uint64_t event);
double clock_event_ns(uint64_t event);  // below 0: the event was not recorded, or is not done

GPUCAST_VGPU_API void clock_communicate(const char* name, const std::string& calls_json, RankWork ranks, uint64_t stream);

// For tests: a clock that does not come from the profile; `ask` answers instead of the server.
void start_clock(ClockMode mode, std::function<std::string(const std::string& question)> ask, int64_t call_ns = 0,
                 int64_t yardstick_ns = 0);
void stop_clock();

void lock_clock();
void unlock_clock();

}  // namespace gpucast::vgpu

extern "C" {
// How far the host's time is ahead of the machine's clock, in nanoseconds: in a warped run, the time that was skipped instead of waited,
// less what the host of a card would be faster.
GPUCAST_VGPU_API int64_t gpucast_vgpu_time_ahead_ns();
// How long a fixed piece of work takes now on this machine (host_speed.h).
GPUCAST_VGPU_API int64_t gpucast_vgpu_yardstick_ns();
// What a clock of the machine (CLOCK_MONOTONIC, ...) shows in the host's time.
GPUCAST_VGPU_API int64_t gpucast_vgpu_host_clock_ns(int clock_id);
// Sets the host's time back: undoes a wait that a real run would not have had.
GPUCAST_VGPU_API void gpucast_vgpu_set_back(int64_t ns);
// The capture layer took this time, which a real host does not need.
GPUCAST_VGPU_API void gpucast_vgpu_was_interrupted(int64_t ns);
// For a caller that interrupts each operator: three numbers in nanoseconds. It adds measured times to the first and usual ones to the
// second. The third is this machine's yardstick while the usual times were measured.
GPUCAST_VGPU_API int64_t* gpucast_vgpu_interruptions();
// Whether matrix products and convolutions of fp32 may use TF32, from now on.
GPUCAST_VGPU_API void gpucast_vgpu_allow_tf32(int products, int convolutions);
}

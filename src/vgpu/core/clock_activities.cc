#include "src/vgpu/core/clock_activities.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/host_time.h"
#include "src/vgpu/core/operator_launches.h"

namespace gpucast::vgpu {
namespace {

std::atomic<uint32_t> g_correlations{0};
std::atomic<void (*)(uint32_t)> g_on_call{nullptr};

uint64_t this_thread() {
  thread_local const auto kThread = static_cast<uint64_t>(syscall(SYS_gettid));
  return kThread;
}

int64_t unix_ns(const Clock& clock, double at_ns) { return clock.start_unix_ns + static_cast<int64_t>(at_ns); }

void finish_activity(Clock& clock, size_t work, const GpuTimeline::Span& span) {
  const auto found = clock.running_activities.find(work);
  if (found == clock.running_activities.end()) return;
  found->second.start_ns = unix_ns(clock, span.start_ns);
  found->second.end_ns = unix_ns(clock, span.end_ns);
  clock.finished_activities.push_back(found->second);
  clock.running_activities.erase(found);
}

}  // namespace

GraphLaunch& current_graph_launch() {
  thread_local GraphLaunch t_launch;
  return t_launch;
}

uint32_t next_correlation() {
  const uint32_t correlation = ++g_correlations;
  if (const auto on_call = g_on_call.load(std::memory_order_relaxed)) on_call(correlation);
  return correlation;
}

uint32_t correlation_if_recorded() {
  return current_graph_launch().correlation == 0 && g_on_call.load(std::memory_order_relaxed) != nullptr ? next_correlation() : 0;
}

void record_call(Clock& clock, ActivityKind kind, uint32_t correlation, const char* function, bool driver, double from_ns, double to_ns,
                 const StreamPlace* place, uint64_t event) {
  if (!clock.recording()) return;
  Activity call{};
  call.kind = kind;
  call.correlation = correlation;
  call.start_ns = unix_ns(clock, from_ns);
  call.end_ns = unix_ns(clock, to_ns);
  call.name = function;
  call.driver = driver;
  call.thread = this_thread();
  call.device = place == nullptr ? current_device() : place->device;
  call.stream = place == nullptr ? 0 : place->id;
  call.event = event;
  clock.finished_activities.push_back(call);
}

void record_activities(bool on, void (*on_call)(uint32_t correlation)) {
  submit_held_launches();
  Clock* clock = run_clock();
  if (clock == nullptr) return;
  g_on_call = on ? on_call : nullptr;
  const ClockLock lock(clock->mutex);
  clock->host.exact = on;
  if (on) {
    clock->start_unix_ns = machine_ns(CLOCK_REALTIME) - static_cast<int64_t>(host_now_ns(clock->host));
    clock->gpu.on_done([clock](size_t work, const GpuTimeline::Span& span) { finish_activity(*clock, work, span); });
  } else {
    clock->running_activities.clear();
  }
}

std::vector<Activity> take_activities() {
  submit_held_launches();
  Clock* clock = run_clock();
  if (clock == nullptr) return {};
  std::vector<Activity> out;
  {
    const ClockLock lock(clock->mutex);
    clock->gpu.advance(host_now_ns(clock->host));
    out.swap(clock->finished_activities);
  }
  std::stable_sort(out.begin(), out.end(), [](const Activity& a, const Activity& b) { return a.correlation < b.correlation; });
  return out;
}

}  // namespace gpucast::vgpu

#include "src/vgpu/core/clock.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/time/gpu_timeline.h"
#include "src/vgpu/core/clock_activities.h"
#include "src/vgpu/core/clock_ranks.h"
#include "src/vgpu/core/clock_server.h"
#include "src/vgpu/core/clock_state.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/host_time.h"
#include "src/vgpu/core/operator_launches.h"
#include "src/vgpu/core/process.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {
namespace {

constexpr size_t kQueueDepth = 1024;      // launches that a stream accepts before the next launch blocks
constexpr size_t kQueueGoesOn = 960;      // a blocked launch continues once at most this many are left
constexpr uint32_t kDefaultStreamId = 7;  // as CUPTI numbers streams
constexpr uint64_t kBlocking = 0;         // the flags of a stream that waits for the default stream

std::atomic<Clock*> g_clock{nullptr};
std::atomic<int> g_state{0};  // 0: not looked for yet; 1: no clock; 2: a clock

Clock* make_clock() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_state.load() != 0) return g_clock.load();
  const DeviceProfile& card = profile();
  if (card.clock != 0) {
    auto* clock = new Clock;  // never destroyed: used until the very end
    clock->host.mode = static_cast<ClockMode>(card.clock);
    clock->host.start_ns = machine_ns(CLOCK_MONOTONIC);
    clock->host.call_ns = card.clock_call_ns;
    clock->host.yardstick_ns = card.clock_yardstick_ns;
    clock->latency_ns = card.clock_latency_ns;
    clock->event_ns = card.clock_event_ns;
    auto server = std::make_shared<ClockServer>(card.clock_socket);
    clock->ask = [server](const std::string& question) { return server->ask(question); };
    g_clock = clock;
  }
  g_state = card.clock != 0 ? 2 : 1;
  return g_clock.load();
}

// ---- streams -----------------------------------------------------------------------------------------------------------------------

// Called before the clock's lock is taken: it takes the lock of streams, which always comes first.
StreamPlace stream_place(uint64_t handle) {
  StreamInfo info{};
  if (stream_info(handle, &info) != kSuccess) info.device = current_device();
  const auto device = static_cast<uint64_t>(info.device);
  if (handle <= 1) return {1 + 2 * device, info.device, kDefaultStreamId, kBlocking, 0};
  if (handle == 2) return {2 + 2 * device, info.device, kDefaultStreamId + 1, 1, 0};
  return {handle, info.device, static_cast<uint32_t>(info.id) + 12, info.flags, info.priority};
}

uint32_t timeline_stream(Clock& clock, const StreamPlace& place) {
  const auto [found, added] = clock.streams.try_emplace(place.key, 0);
  if (added) {
    found->second = clock.gpu.add_stream(place.priority);
    if (place.key > 2 + 2 * kMostDevices && place.flags == kBlocking) clock.blocking_streams.push_back(found->second);
  }
  return found->second;
}

// The legacy default stream and blocking streams wait for each other.
void wait_for_default(Clock& clock, const StreamPlace& place, uint32_t stream, double now) {
  if (clock.blocking_streams.empty()) return;
  const auto join = [&](uint32_t other) {
    if (other == stream || clock.gpu.pending(other) == 0) return;
    const auto event = clock.gpu.record(other, now);
    clock.gpu.wait(stream, event, now);
    clock.gpu.release(event);
  };
  if (place.id == kDefaultStreamId) {
    for (const uint32_t other : clock.blocking_streams) join(other);
  } else if (place.flags == kBlocking) {
    const auto found = clock.streams.find(1 + 2 * static_cast<uint64_t>(place.device));
    if (found != clock.streams.end()) join(found->second);
  }
}

// ---- waiting -------------------------------------------------------------------------------------------------------------------------

// The time up to which the host can wait at once. Not later than now: other ranks must come first.
double next_wake_ns(const Clock& clock, double expected_ns, double now) {
  if (!clock.gates.any()) return std::max(expected_ns, now + 1);
  if (expected_ns == GpuTimeline::kNever) expected_ns = clock.gpu.when_reached();
  return std::min(std::max(expected_ns, now + 1), advance_limit_ns(clock));
}

// Makes the host wait until `done()`. `when()` is the expected time. Both are called with the lock held.
template <class Done, class When>
void wait_until(Clock& clock, const Done& done, const When& when) {
  for (int64_t waited_ns = 0;;) {
    double now = 0, until = 0;
    {
      const ClockLock lock(clock.mutex);
      now = host_now_ns(clock.host);
      advance_clock(clock, now);
      if (done()) return;
      until = next_wake_ns(clock, when(), now);
    }
    if (until > now && until < GpuTimeline::kNever) {
      host_wait_until(clock.host, until);
    } else {
      wait_for_ranks(clock, &waited_ns);
    }
  }
}

// Runs the host functions that streams have reached, one after the other.
void run_host_calls(Clock& clock) {
  constexpr std::chrono::milliseconds kLook{1};
  ClockLock lock(clock.mutex);
  for (;;) {
    const auto due = [&] {
      advance_clock(clock, host_now_ns(clock.host));
      return std::find_if(clock.host_calls.begin(), clock.host_calls.end(), [&](const auto& call) { return clock.gpu.done(call.due); });
    };
    const auto found = due();
    if (found == clock.host_calls.end()) {
      if (clock.host_calls.empty()) {
        clock.host_calls_changed.wait(lock);
      } else {
        clock.host_calls_changed.wait_for(lock, kLook);
      }
      continue;
    }
    const HostCall call = *found;
    lock.unlock();
    call.host.function(call.host.data);
    lock.lock();
    clock.gpu.release(call.due);
    clock.host_calls.erase(
        std::find_if(clock.host_calls.begin(), clock.host_calls.end(), [&](const auto& other) { return other.due == call.due; }));
    clock.host_calls_changed.notify_all();
  }
}

// Returns once all due host functions have run. Must not be called from a host function.
void finish_host_calls(Clock& clock) {
  ClockLock lock(clock.mutex);
  clock.host_calls_changed.notify_all();
  clock.host_calls_changed.wait(lock, [&] {
    return std::none_of(clock.host_calls.begin(), clock.host_calls.end(), [&](const auto& call) { return clock.gpu.done(call.due); });
  });
}

template <class Done, class When>
void host_waits(const char* function, uint64_t event, const StreamPlace* place, const Done& done, const When& when) {
  Clock& clock = *run_clock();
  const double from = host_now_ns(clock.host);
  wait_until(clock, done, when);
  finish_host_calls(clock);
  const uint32_t correlation = next_correlation();
  const ClockLock lock(clock.mutex);
  record_call(clock, ActivityKind::wait, correlation, function, false, from, host_now_ns(clock.host), place, event);
}

}  // namespace

Clock* run_clock() {
  const int state = g_state.load(std::memory_order_acquire);
  return state == 1 ? nullptr : state == 2 ? g_clock.load(std::memory_order_relaxed) : make_clock();
}

Clock* started_clock() { return g_state.load(std::memory_order_acquire) == 2 ? g_clock.load(std::memory_order_relaxed) : nullptr; }

bool has_clock_now() { return run_clock() != nullptr; }
bool has_clock() { return has_clock_now(); }

ClockIssue clock_issue(uint64_t stream, const char* function, bool driver) {
  Clock& clock = *run_clock();
  ClockIssue out;
  out.place = stream_place(stream);
  const GraphLaunch graph_launch = current_graph_launch();
  out.in_graph = graph_launch.correlation != 0;
  out.graph = graph_launch.exec;
  out.correlation = out.in_graph ? graph_launch.correlation : next_correlation();
  out.at_ns = host_now_ns(clock.host);
  if (out.in_graph) return out;
  if (clock.recording()) {
    const ClockLock lock(clock.mutex);
    record_call(clock, ActivityKind::call, out.correlation, function, driver, out.at_ns,
                out.at_ns + static_cast<double>(clock.host.call_ns), &out.place);
  }
  host_pay_for_call(clock.host);
  return out;
}

void clock_enter(const ClockWork& work, const ClockIssue& issue) {
  Clock& clock = *run_clock();
  uint32_t number = 0;
  bool full = false;
  {
    const ClockLock lock(clock.mutex);
    advance_clock(clock, issue.at_ns);
    number = timeline_stream(clock, issue.place);
    wait_for_default(clock, issue.place, number, issue.at_ns);
    GpuTimeline::Work asked = work.work;
    asked.card = static_cast<size_t>(issue.place.device);
    const size_t index = work.ranks ? enter_gate(clock, number, issue.at_ns + clock.latency_ns, asked.card, work.ranks)
                                    : clock.gpu.add_work(number, issue.at_ns + clock.latency_ns, asked);
    full = !issue.in_graph && clock.gpu.pending(number) >= kQueueDepth;
    if (clock.recording()) {
      Activity activity = work.activity;
      activity.correlation = issue.correlation;
      activity.device = issue.place.device;
      activity.stream = issue.place.id;
      activity.graph = issue.graph;
      clock.running_activities.emplace(index, activity);
    }
  }
  if (!full) return;
  wait_until(
      clock, [&] { return clock.gpu.pending(number) <= kQueueGoesOn; }, [&] { return clock.gpu.when_pending(number, kQueueGoesOn); });
}

void clock_submit(const ClockWork& work, uint64_t stream, const char* function, bool driver) {
  submit_held_launches();
  clock_enter(work, clock_issue(stream, function, driver));
}

void clock_begin_graph(uint64_t exec, uint64_t stream) {
  Clock& clock = *run_clock();
  const StreamPlace place = stream_place(stream);
  const uint32_t correlation = next_correlation();
  current_graph_launch() = {correlation, exec};
  {
    const ClockLock lock(clock.mutex);
    const double now = host_now_ns(clock.host);
    record_call(clock, ActivityKind::call, correlation, "cudaGraphLaunch", false, now, now + static_cast<double>(clock.host.call_ns),
                &place);
  }
  host_pay_for_call(clock.host);
}

void clock_end_graph() { current_graph_launch() = {}; }

void clock_record(uint64_t event, uint64_t stream, bool timed) {
  Clock& clock = *run_clock();
  const StreamPlace place = stream_place(stream);
  const uint32_t correlation = correlation_if_recorded();
  const ClockLock lock(clock.mutex);
  const double now = host_now_ns(clock.host);
  if (correlation != 0) record_call(clock, ActivityKind::call, correlation, "cudaEventRecord", false, now, now, &place, event);
  advance_clock(clock, now);
  const uint32_t number = timeline_stream(clock, place);
  wait_for_default(clock, place, number, now);
  if (timed && clock.event_ns > 0) clock.gpu.add_work(number, now, {.duration_ns = clock.event_ns, .demand = 0});
  const GpuTimeline::EventId made = clock.gpu.record(number, now);
  const auto [found, added] = clock.events.try_emplace(event, made);
  if (!added) clock.gpu.release(std::exchange(found->second, made));
  advance_clock(clock, now);
}

void clock_stream_wait(uint64_t stream, uint64_t event) {
  Clock& clock = *run_clock();
  const StreamPlace place = stream_place(stream);
  const uint32_t correlation = correlation_if_recorded();
  const ClockLock lock(clock.mutex);
  const double now = host_now_ns(clock.host);
  if (correlation != 0) record_call(clock, ActivityKind::wait, correlation, "cudaStreamWaitEvent", false, now, now, &place, event);
  const auto found = clock.events.find(event);
  if (found == clock.events.end() || clock.gpu.done(found->second)) return;
  clock.gpu.wait(timeline_stream(clock, place), found->second, now);
}

void clock_forget(uint64_t event) {
  Clock& clock = *run_clock();
  const ClockLock lock(clock.mutex);
  const auto found = clock.events.find(event);
  if (found == clock.events.end()) return;
  clock.gpu.release(found->second);
  clock.events.erase(found);
}

void clock_call_host(HostFunction host, uint64_t stream) {
  Clock& clock = *run_clock();
  const StreamPlace place = stream_place(stream);
  const ClockLock lock(clock.mutex);
  const double now = host_now_ns(clock.host);
  advance_clock(clock, now);
  const uint32_t number = timeline_stream(clock, place);
  clock.host_calls.push_back({host, clock.gpu.record(number, now)});
  if (!std::exchange(clock.host_thread, true)) std::thread([&clock] { run_host_calls(clock); }).detach();
  clock.host_calls_changed.notify_all();
}

void clock_wait_stream(uint64_t stream) {
  Clock& clock = *run_clock();
  const StreamPlace place = stream_place(stream);
  std::vector<uint32_t> numbers;
  {
    const ClockLock lock(clock.mutex);
    numbers.push_back(timeline_stream(clock, place));
    if (place.id == kDefaultStreamId) numbers.insert(numbers.end(), clock.blocking_streams.begin(), clock.blocking_streams.end());
  }
  const auto all_done = [&] {
    return std::all_of(numbers.begin(), numbers.end(), [&](uint32_t stream_number) { return clock.gpu.pending(stream_number) == 0; });
  };
  host_waits("cudaStreamSynchronize", 0, &place, all_done, [&] {
    double when = 0;
    for (const uint32_t stream_number : numbers) when = std::max(when, clock.gpu.when_pending(stream_number, 0));
    return when;
  });
}

void clock_wait_event(uint64_t event) {
  Clock& clock = *run_clock();
  const auto found_now = [&]() -> std::optional<GpuTimeline::EventId> {
    const auto found = clock.events.find(event);
    return found == clock.events.end() ? std::nullopt : std::optional(found->second);
  };
  host_waits(
      "cudaEventSynchronize", event, nullptr, [&] { return !found_now() || clock.gpu.done(*found_now()); },
      [&] { return clock.gpu.when_done(*found_now()); });
}

void clock_wait_device() {
  Clock& clock = *run_clock();
  const auto idle = [&] {
    return std::all_of(clock.streams.begin(), clock.streams.end(), [&](const auto& entry) { return clock.gpu.pending(entry.second) == 0; });
  };
  host_waits("cudaDeviceSynchronize", 0, nullptr, idle, [&] { return clock.gpu.when_all_done(); });
}

bool clock_stream_done(uint64_t stream) {
  Clock& clock = *run_clock();
  const StreamPlace place = stream_place(stream);
  const ClockLock lock(clock.mutex);
  advance_clock(clock, host_now_ns(clock.host));
  return clock.gpu.pending(timeline_stream(clock, place)) == 0;
}

bool clock_event_done(uint64_t event) {
  Clock& clock = *run_clock();
  const ClockLock lock(clock.mutex);
  advance_clock(clock, host_now_ns(clock.host));
  const auto found = clock.events.find(event);
  return found == clock.events.end() || clock.gpu.done(found->second);
}

double clock_event_ns(uint64_t event) {
  Clock& clock = *run_clock();
  const ClockLock lock(clock.mutex);
  advance_clock(clock, host_now_ns(clock.host));
  const auto found = clock.events.find(event);
  return found == clock.events.end() ? -1 : clock.gpu.event_ns(found->second);
}

void start_clock(ClockMode mode, std::function<std::string(const std::string&)> ask, int64_t call_ns, int64_t yardstick_ns) {
  static auto* g_kept = new std::vector<Clock*>;  // tests only: few, and the thread of an old clock may still use it
  Clock* clock = g_kept->emplace_back(new Clock);
  clock->host.mode = mode;
  clock->host.start_ns = machine_ns(CLOCK_MONOTONIC);
  clock->host.call_ns = call_ns;
  clock->host.yardstick_ns = yardstick_ns;
  clock->ask = std::move(ask);
  reset_host_time();
  g_clock = clock;
  g_state = 2;
}

void stop_clock() {
  g_clock = nullptr;
  g_state = 1;
}

void lock_clock() {
  if (Clock* clock = g_clock.load()) clock->mutex.lock();
}
void unlock_clock() {
  if (Clock* clock = g_clock.load()) clock->mutex.unlock();
}

}  // namespace gpucast::vgpu

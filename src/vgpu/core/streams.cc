#include "src/vgpu/core/streams.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/operator_launches.h"
#include "src/vgpu/core/stream_order.h"
#include "src/vgpu/core/stream_state.h"

namespace gpucast::vgpu {
namespace {

constexpr uint64_t kClockOperationNs = 100'000, kClockRecordNs = 1'000;

std::atomic<bool> g_holding{false};  // some stream has ever been held

// Only the last post of each sender is kept: the posts of a rank come in order.
void add_arrival(std::vector<Arrival>& arrivals, const Arrival& added) {
  for (Arrival& arrival : arrivals) {
    if (arrival.board != added.board || arrival.from != added.from || arrival.whom != added.whom) continue;
    if (arrival.number < added.number) arrival = added;
    return;
  }
  arrivals.push_back(added);
}

void wait_for_arrivals(const std::vector<Arrival>& arrivals) {
  for (const Arrival& arrival : arrivals) arrival.has_arrived(true);
}

// `arrivals`: gets the posts that the stream still waits for; the stream no longer has them.
int finish_stream(uint64_t stream, std::vector<Arrival>* arrivals) {
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  if (found->capture == 0) {
    state.finish_held(found->pending);
    if (arrivals != nullptr) arrivals->swap(found->pending.arrivals);
    return kSuccess;
  }
  state.break_capture(found->capture);
  return kCaptureUnsupported;
}

}  // namespace

// ---- Streams ----------------------------------------------------------------------------------------------------------------

uint64_t stream_create(unsigned flags, int priority) {
  context_activate();
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  const uint64_t handle = state.new_handle();
  Stream& stream = state.streams[handle];
  stream.flags = flags;
  stream.priority = priority;
  stream.id = state.next_id++;
  stream.device = current_device();
  return handle;
}

int stream_destroy(uint64_t stream) {
  submit_held_launches();
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  if (stream <= 2) return kInvalidHandle;
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  StreamCapture* capture = state.find_capture(found->capture);
  if (capture != nullptr && capture->origin_stream == stream) {
    state.end_capture(found->capture);
  } else if (capture != nullptr) {
    capture->broken = true;
  }
  state.streams.erase(stream);
  return kSuccess;
}

int stream_info(uint64_t stream, StreamInfo* info) {
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  const Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  *info = {found->flags, found->priority, found->id, stream <= 2 ? current_device() : found->device};
  return kSuccess;
}

void stream_awaits(uint64_t stream, const Arrival& arrival) {
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return;
  add_arrival(found->pending.arrivals, arrival);
  found->pending.barrier.reset();
  if (arrival.barrier()) found->pending.barrier = arrival;
}

int stream_synchronize(uint64_t stream) {
  submit_held_launches();
  context_activate();
  std::vector<Arrival> arrivals;
  const int code = finish_stream(stream, &arrivals);
  if (code == kSuccess) log_host_wait(stream);
  wait_for_arrivals(arrivals);
  return code;
}
int stream_query(uint64_t stream) {
  submit_held_launches();
  bool asks_clock = false;
  {
    StreamState& state = stream_state();
    const StreamLock lock(state.mutex);
    const Stream* found = state.find_stream(stream);
    if (found != nullptr && found->capture == 0 && state.any_unfinished(found->pending)) return kNotReady;
    asks_clock = found != nullptr && found->capture == 0 && has_clock_now();
  }
  if (asks_clock && !clock_stream_done(stream)) return kNotReady;
  return finish_stream(stream, nullptr);
}

int device_synchronize() {
  submit_held_launches();
  context_activate();
  finish_all_work();
  if (!has_clock_now()) order_host_wait_device();
  std::vector<Arrival> arrivals;
  StreamState& state = stream_state();
  {
    const StreamLock lock(state.mutex);
    for (auto& [handle, stream] : state.streams) {
      arrivals.insert(arrivals.end(), stream.pending.arrivals.begin(), stream.pending.arrivals.end());
      stream.pending.arrivals.clear();
    }
  }
  wait_for_arrivals(arrivals);
  if (active_captures() == 0) return kSuccess;
  const StreamLock lock(state.mutex);
  for (auto& [id, capture] : state.captures) capture.broken = true;
  return state.captures.empty() ? kSuccess : kCaptureUnsupported;
}

void log_host_wait(uint64_t stream) { order_host_wait_stream(stream); }

void finish_all_work() {
  submit_held_launches();
  if (has_clock_now()) clock_wait_device();
  if (!g_holding.load()) return;
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  state.unfinished.clear();
}

// ---- Events -----------------------------------------------------------------------------------------------------------------

uint64_t event_create(unsigned flags) {
  context_activate();
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  const uint64_t handle = state.new_handle();
  state.events[handle].flags = flags;
  return handle;
}

int event_destroy(uint64_t event) {
  submit_held_launches();
  if (has_clock_now()) clock_forget(event);
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  return state.events.erase(event) == 1 ? kSuccess : kInvalidHandle;
}

int event_record(uint64_t event, uint64_t stream) {
  submit_held_launches();
  StreamState& state = stream_state();
  std::unique_lock lock(state.mutex);
  Event* found = state.find_event(event);
  Stream* on = state.find_stream(stream);
  if (found == nullptr || on == nullptr) return kInvalidHandle;
  state.submit_held(*on);
  found->recorded = true;
  found->time_ns = operations() * kClockOperationNs + ++state.event_records * kClockRecordNs;
  found->capture = on->capture;
  found->dependencies = on->dependencies;
  found->pending = on->pending;
  const bool captured = on->capture != 0, timed = (found->flags & kEventDisableTiming) == 0;
  lock.unlock();
  if (!captured) order_event_record(event, stream, timed);
  return kSuccess;
}

int event_query(uint64_t event) {
  submit_held_launches();
  std::optional<Arrival> barrier;
  StreamState& state = stream_state();
  {
    const StreamLock lock(state.mutex);
    if (const Event* found = state.find_event(event)) barrier = found->pending.barrier;
  }
  const bool waits = barrier && !barrier->has_arrived(false);
  const StreamLock lock(state.mutex);
  const Event* found = state.find_event(event);
  if (found == nullptr) return kInvalidHandle;
  if (waits) return kNotReady;
  if (found->capture == 0 || !state.captures.contains(found->capture)) {
    if (has_clock_now() && !clock_event_done(event)) return kNotReady;
    return state.any_unfinished(found->pending) ? kNotReady : kSuccess;
  }
  state.break_capture(found->capture);
  return kCapturedEvent;
}

int event_synchronize(uint64_t event) {
  submit_held_launches();
  std::vector<Arrival> arrivals;
  {
    StreamState& state = stream_state();
    const StreamLock lock(state.mutex);
    Event* found = state.find_event(event);
    if (found != nullptr && found->capture == 0) {
      state.finish_held(found->pending);
      arrivals.swap(found->pending.arrivals);
    }
  }
  wait_for_arrivals(arrivals);
  if (has_clock_now()) clock_wait_event(event);
  const int code = event_query(event);
  if (code == kSuccess && !has_clock_now()) order_host_wait_event(event);
  return code;
}

int stream_wait_event(uint64_t stream, uint64_t event) {
  submit_held_launches();
  StreamState& state = stream_state();
  std::unique_lock lock(state.mutex);
  Stream* waiting = state.find_stream(stream);
  const Event* found = state.find_event(event);
  if (waiting == nullptr || found == nullptr) return kInvalidHandle;
  if (found->capture == 0 || !state.captures.contains(found->capture)) {
    if (state.any_unfinished(found->pending)) waiting->pending.held.insert(found->pending.held.begin(), found->pending.held.end());
    for (const Arrival& arrival : found->pending.arrivals) add_arrival(waiting->pending.arrivals, arrival);
    const bool plain = waiting->capture == 0 && found->recorded;
    lock.unlock();
    if (plain) order_stream_wait(stream, event);
    return kSuccess;
  }
  if (stream <= 1) {  // the default stream cannot take part in a capture
    state.break_capture(found->capture);
    return kCaptureImplicit;
  }
  if (waiting->capture == 0) {
    waiting->capture = found->capture;
    waiting->dependencies.clear();
  } else if (waiting->capture != found->capture) {
    state.break_capture(found->capture);
    state.break_capture(waiting->capture);
    return kCaptureUnsupported;
  }
  for (const uint64_t node : found->dependencies)
    if (std::find(waiting->dependencies.begin(), waiting->dependencies.end(), node) == waiting->dependencies.end())
      waiting->dependencies.push_back(node);
  return kSuccess;
}

int event_elapsed(uint64_t from, uint64_t to, float* elapsed_ms) {
  submit_held_launches();
  if (elapsed_ms == nullptr) return kInvalidValue;
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  const Event *first = state.find_event(from), *last = state.find_event(to);
  if (first == nullptr || last == nullptr || !first->recorded || !last->recorded) return kInvalidHandle;
  if ((first->flags | last->flags) & kEventDisableTiming) return kInvalidHandle;
  if (has_clock_now()) {
    const double first_ns = clock_event_ns(from), last_ns = clock_event_ns(to);
    if (first_ns < 0 || last_ns < 0) return kNotReady;
    *elapsed_ms = static_cast<float>((last_ns - first_ns) / 1e6);
    return kSuccess;
  }
  *elapsed_ms = static_cast<float>((static_cast<double>(last->time_ns) - static_cast<double>(first->time_ns)) / 1e6);
  return kSuccess;
}

void call_host(HostFunction host, uint64_t stream) {
  submit_held_launches();
  if (has_clock_now()) {
    clock_call_host(host, stream);
  } else {
    host.function(host.data);
  }
}

}  // namespace gpucast::vgpu

using namespace gpucast::vgpu;

int gpucast_vgpu_hold_stream(uint64_t stream) {
  context_activate();
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  g_holding.store(true);
  found->held = true;
  return kSuccess;
}

int gpucast_vgpu_finish_stream(uint64_t stream) {
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  found->held = false;
  state.finish_held(found->pending);
  return kSuccess;
}

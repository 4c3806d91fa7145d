#include "src/vgpu/core/stream_state.h"

#include <algorithm>
#include <atomic>

#include "src/vgpu/core/process.h"

namespace gpucast::vgpu {
namespace {

template <class Table>
auto* find_in(Table& table, uint64_t handle) {
  const auto found = table.find(handle);
  return found == table.end() ? nullptr : &found->second;
}

std::atomic<int> g_captures{0};

}  // namespace

StreamState& stream_state() {
  static StreamState* const kState = new StreamState;  // never destroyed: used until the very end
  return *kState;
}

int active_captures() { return g_captures.load(std::memory_order_relaxed); }
void count_captures(int change) { g_captures.fetch_add(change); }

Stream* StreamState::find_stream(uint64_t handle) { return find_in(streams, handle == 1 ? 0 : handle); }
Event* StreamState::find_event(uint64_t handle) { return find_in(events, handle); }
StreamCapture* StreamState::find_capture(uint64_t id) { return find_in(captures, id); }

bool StreamState::any_unfinished(const PendingWork& work) const {
  return !unfinished.empty() &&
         std::any_of(work.held.begin(), work.held.end(), [this](uint64_t held) { return unfinished.contains(held); });
}

void StreamState::finish_held(const PendingWork& work) {
  for (const uint64_t held : work.held) unfinished.erase(held);
}

void StreamState::submit_held(Stream& stream) {
  if (!stream.held) return;
  std::erase_if(stream.pending.held, [this](uint64_t held) { return !unfinished.contains(held); });
  stream.pending.held.insert(next_held_work);
  unfinished.insert(next_held_work++);
}

void StreamState::break_capture(uint64_t id) {
  if (StreamCapture* capture = find_capture(id)) capture->broken = true;
}

StreamCapture StreamState::end_capture(uint64_t id) {
  for (auto& [handle, stream] : streams) {
    if (stream.capture != id) continue;
    stream.capture = 0;
    stream.dependencies.clear();
  }
  const StreamCapture ended = captures.at(id);
  captures.erase(id);
  count_captures(-1);
  return ended;
}

void lock_streams() { stream_state().mutex.lock(); }
void unlock_streams() { stream_state().mutex.unlock(); }

}  // namespace gpucast::vgpu

// The state that streams.cc, stream_capture.cc and graphs.cc share: streams, events and captures. One lock guards them, and also graphs and
// user objects. Internal to the core.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "src/vgpu/core/board.h"

namespace gpucast::vgpu {

// The unfinished work that a stream, or an event recorded on it, waits for.
struct PendingWork {
  std::set<uint64_t> held;         // held work (gpucast_vgpu_hold_stream) submitted earlier; some of it may be finished
  std::vector<Arrival> arrivals;   // posts of other ranks
  std::optional<Arrival> barrier;  // the last arrival, if it is a barrier
};

struct Stream {
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  int device = 0;
  uint64_t capture = 0;                // 0: not captured
  std::vector<uint64_t> dependencies;  // the nodes that the next captured node depends on
  bool held = false;
  PendingWork pending;
};

struct Event {
  unsigned flags = 0;
  bool recorded = false;
  uint64_t time_ns = 0;  // in a run without a clock, for event_elapsed()
  uint64_t capture = 0;  // not 0: recorded on a stream while it was captured
  std::vector<uint64_t> dependencies;
  PendingWork pending;
};

struct StreamCapture {
  uint64_t graph = 0, origin_stream = 0;
  bool broken = false;
};

struct StreamState {
  std::mutex mutex;
  // Multiples of 16, like pointers: PyTorch keeps flags in the low bits of a stream.
  uint64_t last_handle = 0x5c0000001000;
  uint64_t next_id = 1;  // for streams and captures
  uint64_t event_records = 0;
  uint64_t next_held_work = 1;
  std::set<uint64_t> unfinished;  // held work
  std::unordered_map<uint64_t, Stream> streams{{0, {}}, {2, {}}};
  std::unordered_map<uint64_t, Event> events;
  std::unordered_map<uint64_t, StreamCapture> captures;  // by id

  uint64_t new_handle() { return last_handle += 16; }
  // nullptr: no such handle.
  Stream* find_stream(uint64_t handle);
  Event* find_event(uint64_t handle);
  StreamCapture* find_capture(uint64_t id);

  bool any_unfinished(const PendingWork& work) const;
  void finish_held(const PendingWork& work);
  void submit_held(Stream& stream);  // if the stream is held: adds one piece of held work

  void break_capture(uint64_t id);
  StreamCapture end_capture(uint64_t id);  // its streams are no longer captured
};

StreamState& stream_state();
using StreamLock = std::lock_guard<std::mutex>;

// The number of captures. While it is 0, a launch needs no lock.
int active_captures();
void count_captures(int change);

}  // namespace gpucast::vgpu

// What clock.cc, clock_work.cc and clock_activities.cc share: the clock of a run. Internal to the core.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/base/text_hash.h"
#include "src/time/gpu_timeline.h"
#include "src/vgpu/core/activities.h"
#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/clock_ranks.h"
#include "src/vgpu/core/host_time.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

// A host function in a stream (cudaLaunchHostFunc).
struct HostCall {
  HostFunction host;
  GpuTimeline::EventId due;
};

// The server's answer about calls of NCCL.
struct KnownCommunication {
  double duration_ns = 0, multiprocessors = 0, moving = 0, memory = 0;
  int64_t buffered_bytes = 0;
  bool meets_all = true;  // false: its messages meet one by one
};

struct Clock {
  HostTime host;
  double latency_ns = 0;  // from a launch to its kernel's start on an idle card
  double event_ns = 0;    // the stream's time for an event that keeps its time
  std::function<std::string(const std::string&)> ask;

  std::mutex mutex;  // guards everything below
  GpuTimeline gpu{0, false};
  std::unordered_map<uint64_t, uint32_t> streams;  // by StreamPlace::key
  std::vector<uint32_t> blocking_streams;          // they wait for the legacy default stream, and it waits for them
  std::unordered_map<uint64_t, GpuTimeline::EventId> events;
  std::unordered_map<uint64_t, std::optional<GpuTimeline::Work>> known_work;  // by a hash of the question
  std::unordered_map<uint64_t, KnownCommunication> known_communication;       // likewise
  std::unordered_set<uint64_t> sent_values;                                   // ids of values that the server has
  std::unordered_set<uint64_t> sent_codes;                                    // hashes of PTX that the server has
  std::unordered_set<std::string, TextHash, std::equal_to<>> names;           // never removed: pointers to them are kept
  int64_t start_unix_ns = 0;                                                  // the clock's start as profilers see it
  RankGates gates;
  std::unordered_map<size_t, Activity> running_activities;
  std::vector<Activity> finished_activities;
  std::deque<HostCall> host_calls;  // in the order of submission; the first may be running
  bool host_thread = false;
  std::condition_variable host_calls_changed;

  // Whether a profiler records: then the host's time runs with the machine's clock.
  bool recording() const { return host.exact.load(std::memory_order_relaxed); }
};

using ClockLock = std::unique_lock<std::mutex>;

Clock* run_clock();      // nullptr: a run without a clock
Clock* started_clock();  // nullptr also before the script's first use of the card

// A stream and its device.
struct StreamPlace {
  uint64_t key;  // the default streams of each device: 1 + 2 x device (legacy), 2 + 2 x device; else the handle
  int device;
  uint32_t id;  // as CUPTI numbers streams
  unsigned flags;
  int priority;
};

// The host's request for a piece of work.
struct ClockIssue {
  StreamPlace place{};
  uint32_t correlation = 0;
  uint64_t graph = 0;  // executable graph that launches it; 0: none
  bool in_graph = false;
  double at_ns = 0;
};
// clock_submit() in two parts: the host requests the work, and the card gets it. The second part may come later.
ClockIssue clock_issue(uint64_t stream, const char* function, bool driver);
void clock_enter(const ClockWork& work, const ClockIssue& issue);

}  // namespace gpucast::vgpu

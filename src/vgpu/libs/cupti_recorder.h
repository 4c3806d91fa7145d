// Makes CUPTI's records of what the clock tells (core/activities.h): the state behind the activity interface of cupti.cc.
//
// Records go into buffers of the profiler's: it is asked for one at the first call that is recorded, and gets it back when it is full or
// when it flushes. All functions may be called from several threads; the profiler's callbacks are called without a lock that a call
// of the CUDA API takes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/vgpu/core/activities.h"
#include "src/vgpu/libs/cupti_types.h"

namespace gpucast::vgpu::cupti {

// The id of a function by its API's name ("cudaLaunchKernel", "cuMemcpyHtoDAsync" with or without its _v2); 0: none.
uint32_t function_id(bool driver, const char* name);
// The name CUPTI gives to an id ("cudaLaunchKernel_v7000"); nullptr: none.
const char* function_name(bool driver, uint32_t id);
size_t record_size(uint32_t kind);  // 0: no kind that comes
// The record behind *record in a buffer, or the first one if that is nullptr.
Result next_record(uint8_t* buffer, size_t valid_bytes, Record** record);

class Recorder {
 public:
  // Where activities come from, and the clock on the wall: the core's, or a test's.
  struct Source {
    void (*record)(bool on, void (*on_call)(uint32_t correlation));
    std::vector<Activity> (*take)();
    int64_t (*now_ns)();  // since 1970
    KernelResources (*resources)(const void* function);
  };
  using RequestBuffer = void (*)(uint8_t** buffer, size_t* size_bytes, size_t* most_records);
  using CompleteBuffer = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size_bytes, size_t valid_bytes);

  // `calls` is handed to the source and must pass them on to on_call().
  Recorder(Source source, void (*calls)(uint32_t correlation)) : source_(source), calls_of_source_(calls) {}

  Result register_callbacks(RequestBuffer ask, CompleteBuffer give);
  Result enable(uint32_t kind, bool on);
  void enable_function(bool driver, uint32_t id, bool on);  // whether calls of it get records, where its kind is on
  Result push_external(uint32_t kind, uint64_t id);         // of the calling thread
  Result pop_external(uint32_t kind, uint64_t* id);         // `id` may be nullptr
  // Times are nanoseconds since 1970 until this; from then on what `clock` counts in (Kineto: the processor's ticks).
  void register_clock(uint64_t (*clock)());
  uint64_t now();
  // Hands over what is over. Unless `forced`, a profiler that held a buffer holds one afterwards: Kineto asks for nothing when it holds
  // none.
  void flush(bool forced);
  size_t take_dropped() { return dropped_.exchange(0); }
  void on_call(uint32_t correlation);

 private:
  struct Pair {
    uint64_t ticks;
    int64_t ns;
  };
  struct Kinds {  // what was on for calls from this one on
    uint32_t first_correlation;
    uint64_t kinds;
  };
  struct External {
    uint32_t correlation, kind;
    uint64_t id;
  };
  struct Buffer {
    uint8_t* bytes = nullptr;
    size_t size_bytes = 0, used_bytes = 0, most_records = 0, records = 0;
  };

  struct Telling {  // how activities become records
    uint64_t kinds = 0;
    uint64_t (*clock)() = nullptr;
    Pair origin{};
    double ticks_per_ns = 1;
    std::array<std::vector<uint32_t>, 2> silent;
  };

  Pair read_clocks(uint64_t (*clock)()) const;
  void add(const Activity& activity, const Telling& telling, std::vector<uint8_t>& group);
  void drain();
  void request();
  void complete();
  void write(std::span<const uint8_t> group);

  const Source source_;
  void (*const calls_of_source_)(uint32_t);

  std::mutex mutex_;  // of the settings; held for moments
  uint64_t kinds_ = 0;
  std::vector<Kinds> history_;
  std::vector<External> externals_;              // of calls of which nothing was written yet
  std::array<std::vector<uint32_t>, 2> silent_;  // functions without records: runtime's, driver's
  RequestBuffer ask_ = nullptr;
  CompleteBuffer give_ = nullptr;
  uint64_t (*clock_)() = nullptr;
  Pair registered_{};
  std::atomic<bool> changed_ = false, externals_on_ = false;

  std::mutex flushing_;  // of the buffer, and held while the profiler's callbacks run; taken before mutex_
  Buffer buffer_;
  std::atomic<bool> buffer_held_ = false;
  std::atomic<size_t> dropped_ = 0;
  std::atomic<size_t> calls_ = 0;                 // since the last drain
  std::unordered_map<uint32_t, uint32_t> nodes_;  // of a graph's launches: how many of their nodes were written
};

}  // namespace gpucast::vgpu::cupti

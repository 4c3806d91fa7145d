// Makes CUPTI's records from the activities of the clock (core/activities.h). cupti.cc is its interface.
//
// Records go into the profiler's buffers. The recorder requests one at the first recorded call, and returns it when it is full or when the
// profiler flushes. All functions may be called from several threads. The profiler's callbacks run without the locks of the CUDA API's
// calls.
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
size_t record_size(uint32_t kind);  // 0: a kind without records
// Finds the record after *record in a buffer, or the first one if *record is nullptr.
Result next_record(uint8_t* buffer, size_t valid_bytes, Record** record);

class Recorder {
 public:
  // The source of activities, and the real-time clock: the core's, or a test's.
  struct Source {
    void (*record)(bool on, void (*on_call)(uint32_t correlation));
    std::vector<Activity> (*take)();
    int64_t (*now_ns)();  // since 1970
    KernelResources (*resources)(const void* function);
  };
  using RequestBuffer = void (*)(uint8_t** buffer, size_t* size_bytes, size_t* most_records);
  using CompleteBuffer = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size_bytes, size_t valid_bytes);

  // `calls` is passed to the source and must forward its calls to on_call().
  Recorder(Source source, void (*calls)(uint32_t correlation)) : source_(source), calls_of_source_(calls) {}

  Result register_callbacks(RequestBuffer ask, CompleteBuffer give);
  Result enable(uint32_t kind, bool on);
  void enable_function(bool driver, uint32_t id, bool on);  // whether the function's calls get records while its kind is on
  Result push_external(uint32_t kind, uint64_t id);         // for the calling thread
  Result pop_external(uint32_t kind, uint64_t* id);         // `id` may be nullptr
  // Until this call, times are nanoseconds since 1970; afterwards they are in units of `clock` (Kineto: the processor's ticks).
  void register_clock(uint64_t (*clock)());
  uint64_t now();
  // Hands over all finished records. Unless `forced`, a profiler that held a buffer gets a new one: without a buffer Kineto reads nothing.
  void flush(bool forced);
  size_t take_dropped() { return dropped_.exchange(0); }
  void on_call(uint32_t correlation);

 private:
  struct ClockReading {
    uint64_t ticks;
    int64_t ns;
  };
  struct Kinds {  // the kinds that are on for calls from this one on
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

  struct RecordSettings {  // the settings for turning activities into records
    uint64_t kinds = 0;
    uint64_t (*clock)() = nullptr;
    ClockReading origin{};
    double ticks_per_ns = 1;
    std::array<std::vector<uint32_t>, 2> silent;
    uint64_t time(int64_t ns) const;
  };

  ClockReading read_clocks(uint64_t (*clock)()) const;
  void add_records(const Activity& activity, const RecordSettings& settings, std::vector<uint8_t>& group);
  void add_kernel(const Activity& activity, const RecordSettings& settings, std::vector<uint8_t>& group);
  void add_copy(const Activity& activity, const RecordSettings& settings, std::vector<uint8_t>& group);
  void add_fill(const Activity& activity, const RecordSettings& settings, std::vector<uint8_t>& group);
  static void add_call(const Activity& activity, const RecordSettings& settings, std::vector<uint8_t>& group);
  uint64_t next_node(const Activity& activity);
  void drain();
  void request();
  void complete();
  void write(std::span<const uint8_t> group);

  const Source source_;
  void (*const calls_of_source_)(uint32_t);

  std::mutex mutex_;  // for the settings; held only briefly
  uint64_t kinds_ = 0;
  std::vector<Kinds> history_;
  std::vector<External> externals_;              // for calls without records so far
  std::array<std::vector<uint32_t>, 2> silent_;  // functions without records: runtime's, driver's
  RequestBuffer ask_ = nullptr;
  CompleteBuffer give_ = nullptr;
  uint64_t (*clock_)() = nullptr;
  ClockReading registered_{};
  std::atomic<bool> changed_ = false, externals_on_ = false;

  std::mutex flushing_;  // for the buffer; held while the profiler's callbacks run; locked before mutex_
  Buffer buffer_;
  std::atomic<bool> buffer_held_ = false;
  std::atomic<size_t> dropped_ = 0;
  std::atomic<size_t> calls_ = 0;                 // since the last drain
  std::unordered_map<uint32_t, uint32_t> nodes_;  // for launches of a graph: the number of nodes already written
};

}  // namespace gpucast::vgpu::cupti

#include "src/vgpu/libs/cupti_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "src/vgpu/libs/cupti_functions.h"

namespace gpucast::vgpu::cupti {
namespace {

constexpr int64_t kBetweenClocksNs = 10'000'000;   // two readings of both clocks give their ratio well when they are this far apart
constexpr size_t kMostOfOneCallBytes = 256 << 10;  // for graphs of thousands of kernels
constexpr size_t kCallsBetweenDrains = 256 << 10;  // if the profiler does not flush

struct FunctionRow {
  uint32_t id;
  const char* name;
};
#define GPUCAST_ROW(id, name) {id, #name},
constexpr FunctionRow kRuntimeFunctions[] = {GPUCAST_CUPTI_RUNTIME_FUNCTIONS(GPUCAST_ROW)};
constexpr FunctionRow kDriverFunctions[] = {GPUCAST_CUPTI_DRIVER_FUNCTIONS(GPUCAST_ROW)};
#undef GPUCAST_ROW

std::span<const FunctionRow> functions(bool driver) {
  return driver ? std::span<const FunctionRow>(kDriverFunctions) : std::span<const FunctionRow>(kRuntimeFunctions);
}

// "cudaLaunchKernel" of "cudaLaunchKernel_v7000", "cuMemAlloc" of "cuMemAlloc_v2".
std::string_view without_version(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789");
  if (digits == std::string_view::npos || digits + 1 == name.size() || digits < 1 || name[digits] != 'v' || name[digits - 1] != '_')
    return name;
  return name.substr(0, digits - 1);
}

using Ids = std::unordered_map<std::string_view, uint32_t>;
Ids ids_of(bool driver) {
  Ids ids;
  for (const FunctionRow& row : functions(driver)) {
    ids[row.name] = row.id;
    ids.try_emplace(without_version(row.name), row.id);
  }
  return ids;
}

uint64_t bit(uint32_t kind) { return uint64_t{1} << kind; }
bool has(uint64_t kinds, uint32_t kind) { return (kinds & bit(kind)) != 0; }

// The ids that the calling thread has pushed, by kind.
std::vector<uint64_t>& externals_of_thread(uint32_t kind) {
  thread_local std::array<std::vector<uint64_t>, kExternalKinds> pushed;
  return pushed[kind];
}

template <class Record>
void append(std::vector<uint8_t>& bytes, const Record& record) {
  static_assert(sizeof(Record) % 8 == 0);
  const auto* from = reinterpret_cast<const uint8_t*>(&record);
  bytes.insert(bytes.end(), from, from + sizeof record);
}

uint32_t context_of(const Activity& activity) { return static_cast<uint32_t>(activity.device) + 1; }

CopyKind copy_kind(int cuda_kind) {
  constexpr CopyKind kKinds_[] = {kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice};
  if (cuda_kind == gpucast::vgpu::kCopyBetweenCards) return kPeerToPeer;
  return cuda_kind >= 0 && cuda_kind < 4 ? kKinds_[cuda_kind] : kCopyUnknown;
}

SynchronizationType synchronization_type(std::string_view function) {
  if (function.ends_with("StreamWaitEvent")) return kStreamWaitEvent;
  if (function.ends_with("EventSynchronize")) return kEventSynchronize;
  return function.ends_with("StreamSynchronize") ? kStreamSynchronize : kContextSynchronize;
}

// NCCL's calls with the names of its kernels, because readers of traces recognize communication by them: "ncclDevKernel_AllReduce" for
// "ncclAllReduce".
const char* kernel_name(const char* name) {
  constexpr std::string_view kNccl = "nccl";
  if (std::strncmp(name, kNccl.data(), kNccl.size()) != 0 || std::isupper(static_cast<unsigned char>(name[kNccl.size()])) == 0) return name;
  static std::mutex mutex;
  static auto& names = *new std::unordered_map<std::string, std::string>;  // never destroyed: records point into it
  const std::lock_guard lock(mutex);
  return names.try_emplace(name, "ncclDevKernel_" + std::string(name + kNccl.size())).first->second.c_str();
}

}  // namespace

uint32_t function_id(bool driver, const char* name) {
  static const auto& runtime = *new Ids(ids_of(false));
  static const auto& of_driver = *new Ids(ids_of(true));
  const Ids& ids = driver ? of_driver : runtime;
  const auto found = ids.find(name);
  return found == ids.end() ? 0 : found->second;
}

const char* function_name(bool driver, uint32_t id) {
  const auto rows = functions(driver);
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const FunctionRow& row) { return row.id == id; });
  return found == rows.end() ? nullptr : found->name;
}

size_t record_size(uint32_t kind) {
  switch (kind) {
    case kKernel:
    case kConcurrentKernel:
      return sizeof(ActivityKernel);
    case kMemcpy:
      return sizeof(ActivityMemcpy);
    case kMemset:
      return sizeof(ActivityMemset);
    case kDriver:
    case kRuntime:
      return sizeof(ActivityApi);
    case kExternalCorrelation:
      return sizeof(ActivityExternalCorrelation);
    case kSynchronization:
      return sizeof(ActivitySynchronization);
    case kCudaEvent:
      return sizeof(ActivityCudaEvent);
    default:
      return 0;
  }
}

Result next_record(uint8_t* buffer, size_t valid_bytes, Record** record) {
  if (buffer == nullptr || record == nullptr) return kInvalidParameter;
  uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<uint8_t*>(*record) + record_size((*record)->kind);
  const size_t left = next < buffer + valid_bytes ? static_cast<size_t>(buffer + valid_bytes - next) : 0;
  if (left < sizeof(Record)) return kMaxLimitReached;
  auto* found = reinterpret_cast<Record*>(next);
  if (record_size(found->kind) == 0 || record_size(found->kind) > left) return kInvalidKind;
  *record = found;
  return kSuccess;
}

Result Recorder::register_callbacks(RequestBuffer ask, CompleteBuffer give) {
  if (ask == nullptr || give == nullptr) return kInvalidParameter;
  const std::lock_guard lock(mutex_);
  ask_ = ask;
  give_ = give;
  return kSuccess;
}

Result Recorder::enable(uint32_t kind, bool on) {
  if (kind == 0 || kind >= kKinds) return kSuccess;  // a kind of newer releases
  const std::lock_guard lock(mutex_);
  if (on && kinds_ == 0) source_.record(true, calls_of_source_);
  kinds_ = on ? kinds_ | bit(kind) : kinds_ & ~bit(kind);
  externals_on_ = has(kinds_, kExternalCorrelation);
  changed_ = true;
  return kSuccess;
}

void Recorder::enable_function(bool driver, uint32_t id, bool on) {
  const std::lock_guard lock(mutex_);
  std::vector<uint32_t>& silent = silent_[driver ? 1 : 0];
  std::erase(silent, id);
  if (!on) silent.push_back(id);
}

Result Recorder::push_external(uint32_t kind, uint64_t id) {
  if (kind == 0 || kind >= kExternalKinds) return kInvalidParameter;
  externals_of_thread(kind).push_back(id);
  return kSuccess;
}

Result Recorder::pop_external(uint32_t kind, uint64_t* id) {
  if (kind == 0 || kind >= kExternalKinds) return kInvalidParameter;
  std::vector<uint64_t>& pushed = externals_of_thread(kind);
  if (pushed.empty()) return kQueueEmpty;
  if (id != nullptr) *id = pushed.back();
  pushed.pop_back();
  return kSuccess;
}

void Recorder::register_clock(uint64_t (*clock)()) {
  const std::lock_guard lock(mutex_);
  clock_ = clock;
  if (clock != nullptr) registered_ = read_clocks(clock);
}

uint64_t Recorder::now() {
  const std::lock_guard lock(mutex_);
  return clock_ != nullptr ? clock_() : static_cast<uint64_t>(source_.now_ns());
}

// Reads both clocks at one moment: the best of a few tries.
Recorder::ClockReading Recorder::read_clocks(uint64_t (*clock)()) const {
  ClockReading best{};
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = clock();
    const int64_t ns = source_.now_ns();
    const uint64_t took = clock() - before;
    if (took < least) best = {before + took / 2, ns}, least = took;
  }
  return best;
}

void Recorder::on_call(uint32_t correlation) {
  if (changed_) {
    const std::lock_guard lock(mutex_);
    changed_ = false;
    history_.push_back({correlation, kinds_});
  }
  if (externals_on_) {
    for (uint32_t kind = 1; kind < kExternalKinds; ++kind) {
      const std::vector<uint64_t>& pushed = externals_of_thread(kind);
      if (pushed.empty()) continue;
      const std::lock_guard lock(mutex_);
      externals_.push_back({correlation, kind, pushed.back()});
    }
  }
  const bool many = ++calls_ > kCallsBetweenDrains;
  if (buffer_held_ && !many) return;
  const std::lock_guard lock(flushing_);
  request();
  if (many && calls_ > kCallsBetweenDrains) drain();
}

// ---- Buffers: flushing_ is held -----------------------------------------------------------------------------------------------------

void Recorder::request() {
  RequestBuffer ask = nullptr;
  {
    const std::lock_guard lock(mutex_);
    ask = ask_;
  }
  if (buffer_held_ || ask == nullptr) return;
  buffer_ = {};
  ask(&buffer_.bytes, &buffer_.size_bytes, &buffer_.most_records);
  buffer_held_ = buffer_.bytes != nullptr;
}

void Recorder::complete() {
  if (!buffer_held_) return;
  buffer_held_ = false;
  CompleteBuffer give = nullptr;
  {
    const std::lock_guard lock(mutex_);
    give = give_;
  }
  give(nullptr, 0, buffer_.bytes, buffer_.size_bytes, buffer_.used_bytes);
}

// The records of one call go into one buffer: Kineto does not read buffers in order of time, and a kernel's operator has to come before it.
void Recorder::write(std::span<const uint8_t> group) {
  if (group.empty()) return;
  size_t records = 0;
  for (size_t at = 0; at < group.size(); ++records) {
    Record head;
    std::memcpy(&head, group.data() + at, sizeof head);
    at += record_size(head.kind);
  }
  const auto fits = [&] {
    return buffer_held_ && buffer_.size_bytes - buffer_.used_bytes >= group.size() &&
           (buffer_.most_records == 0 || buffer_.records + records <= buffer_.most_records);
  };
  if (!fits()) {
    if (buffer_.used_bytes > 0 || !buffer_held_) complete();
    request();
  }
  if (!fits()) {
    dropped_ += records;
    return;
  }
  std::memcpy(buffer_.bytes + buffer_.used_bytes, group.data(), group.size());
  buffer_.used_bytes += group.size();
  buffer_.records += records;
}

// Writes the finished activities into buffers and hands full buffers over.
void Recorder::drain() {
  RecordSettings settings;
  std::vector<External> externals;
  std::vector<Kinds> history;
  ClockReading registered{};
  {
    const std::lock_guard lock(mutex_);
    registered = registered_;
    settings.clock = clock_;
  }
  const std::vector<Activity> activities = source_.take();
  if (settings.clock != nullptr && !activities.empty()) {
    const int64_t left_ns = kBetweenClocksNs - (source_.now_ns() - registered.ns);
    const timespec pause{0, std::clamp(left_ns, int64_t{0}, kBetweenClocksNs)};
    if (left_ns > 0) nanosleep(&pause, nullptr);
    settings.origin = read_clocks(settings.clock);
    settings.ticks_per_ns =
        static_cast<double>(settings.origin.ticks - registered.ticks) / static_cast<double>(settings.origin.ns - registered.ns);
  }
  {
    const std::lock_guard lock(mutex_);
    calls_ = 0;
    externals.swap(externals_);
    history = history_;
    settings.silent = silent_;
  }
  std::stable_sort(externals.begin(), externals.end(), [](const External& a, const External& b) { return a.correlation < b.correlation; });

  std::vector<uint8_t> group;
  auto external = externals.begin();
  const auto add_external = [&] {
    append(group, ActivityExternalCorrelation{kExternalCorrelation, external->kind, external->id, external->correlation, 0});
    ++external;
  };
  for (size_t i = 0; i < activities.size();) {
    const uint32_t correlation = activities[i].correlation;
    group.clear();
    while (external != externals.end() && external->correlation <= correlation) add_external();
    const auto set = std::find_if(history.rbegin(), history.rend(), [&](const Kinds& one) { return one.first_correlation <= correlation; });
    settings.kinds = set == history.rend() ? 0 : set->kinds;
    for (; i < activities.size() && activities[i].correlation == correlation; ++i) {
      add_records(activities[i], settings, group);
      if (group.size() > kMostOfOneCallBytes) {
        write(group);
        group.clear();
      }
    }
    write(group);
  }
  while (external != externals.end()) {
    group.clear();
    add_external();
    write(group);
  }
}

void Recorder::flush(bool forced) {
  const std::lock_guard flushing(flushing_);
  const bool held = buffer_held_;
  drain();
  complete();
  if (!forced && held) request();
  if (forced) nodes_.clear();
  // Activities that were running when the last kind was switched off are still reported, until a flush after that.
  const std::lock_guard lock(mutex_);
  if (kinds_ == 0) source_.record(false, nullptr);
}

// ---- Records --------------------------------------------------------------------------------------------------------------------------

uint64_t Recorder::RecordSettings::time(int64_t ns) const {
  if (clock == nullptr) return static_cast<uint64_t>(ns);
  return origin.ticks + static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(ns - origin.ns) * ticks_per_ns));
}

// Nodes of a graph are numbered as they come. The upper half of the number is the graph's, like CUDA's ids.
uint64_t Recorder::next_node(const Activity& a) {
  const auto graph = static_cast<uint32_t>(a.graph);
  return graph == 0 ? 0 : uint64_t{graph} << 32 | nodes_[a.correlation]++;
}

void Recorder::add_records(const Activity& a, const RecordSettings& settings, std::vector<uint8_t>& group) {
  switch (a.kind) {
    case ActivityKind::kernel:
      return add_kernel(a, settings, group);
    case ActivityKind::copy:
      return add_copy(a, settings, group);
    case ActivityKind::fill:
      return add_fill(a, settings, group);
    case ActivityKind::call:
    case ActivityKind::wait:
      return add_call(a, settings, group);
  }
}

void Recorder::add_kernel(const Activity& a, const RecordSettings& settings, std::vector<uint8_t>& group) {
  const uint32_t kind = has(settings.kinds, kConcurrentKernel) ? kConcurrentKernel : kKernel;
  if (!has(settings.kinds, kind)) return;
  ActivityKernel r{};
  r.kind = kind;
  KernelResources takes{.registers = a.registers,
                        .static_shared_bytes = static_cast<int>(a.static_shared_bytes),
                        .local_bytes = static_cast<int>(a.local_bytes)};
  if (takes.registers == 0 && a.function != nullptr) takes = source_.resources(a.function);
  r.registersPerThread = static_cast<uint16_t>(takes.registers);
  r.start = settings.time(a.start_ns);
  r.end = r.completed = settings.time(a.end_ns);
  r.deviceId = static_cast<uint32_t>(a.device);
  r.contextId = context_of(a);
  r.streamId = a.stream;
  r.gridX = static_cast<int32_t>(a.grid[0]), r.gridY = static_cast<int32_t>(a.grid[1]), r.gridZ = static_cast<int32_t>(a.grid[2]);
  r.blockX = static_cast<int32_t>(a.block[0]), r.blockY = static_cast<int32_t>(a.block[1]), r.blockZ = static_cast<int32_t>(a.block[2]);
  r.staticSharedMemory = takes.static_shared_bytes;
  r.dynamicSharedMemory = static_cast<int32_t>(a.dynamic_shared_bytes);
  r.localMemoryPerThread = static_cast<uint32_t>(takes.local_bytes);
  r.correlationId = a.correlation;
  r.gridId = a.correlation;
  r.name = kernel_name(a.name);
  r.graphId = static_cast<uint32_t>(a.graph);
  r.graphNodeId = next_node(a);
  r.channelType = kComputeChannel;
  append(group, r);
}

void Recorder::add_copy(const Activity& a, const RecordSettings& settings, std::vector<uint8_t>& group) {
  if (!has(settings.kinds, kMemcpy)) return;
  ActivityMemcpy r{};
  r.kind = kMemcpy;
  r.copyKind = copy_kind(a.copy_kind);
  const MemoryKind host = a.pinned ? kPinned : kPageable;
  r.srcKind = r.copyKind == kHostToDevice || r.copyKind == kHostToHost ? host : kDeviceMemory;
  r.dstKind = r.copyKind == kDeviceToHost || r.copyKind == kHostToHost ? host : kDeviceMemory;
  r.bytes = a.size_bytes;
  r.start = settings.time(a.start_ns), r.end = settings.time(a.end_ns);
  r.deviceId = static_cast<uint32_t>(a.device), r.contextId = context_of(a), r.streamId = a.stream;
  r.correlationId = a.correlation;
  r.graphId = static_cast<uint32_t>(a.graph), r.graphNodeId = next_node(a);
  r.channelType = kCopyChannel;
  append(group, r);
}

void Recorder::add_fill(const Activity& a, const RecordSettings& settings, std::vector<uint8_t>& group) {
  if (!has(settings.kinds, kMemset)) return;
  ActivityMemset r{};
  r.kind = kMemset;
  r.bytes = a.size_bytes;
  r.start = settings.time(a.start_ns), r.end = settings.time(a.end_ns);
  r.deviceId = static_cast<uint32_t>(a.device), r.contextId = context_of(a), r.streamId = a.stream;
  r.correlationId = a.correlation;
  r.memoryKind = kDeviceMemory;
  r.graphId = static_cast<uint32_t>(a.graph), r.graphNodeId = next_node(a);
  r.channelType = kComputeChannel;
  append(group, r);
}

// A call, the event that it records, and the wait that it is.
void Recorder::add_call(const Activity& a, const RecordSettings& settings, std::vector<uint8_t>& group) {
  const uint64_t kinds = settings.kinds;
  const uint64_t start = settings.time(a.start_ns), end = settings.time(a.end_ns);
  const uint32_t kind = a.driver ? kDriver : kRuntime;
  const uint32_t id = function_id(a.driver, a.name);
  const std::vector<uint32_t>& silent = settings.silent[a.driver ? 1 : 0];
  if (has(kinds, kind) && id != 0 && std::find(silent.begin(), silent.end(), id) == silent.end()) {
    append(group, ActivityApi{kind, id, start, end, static_cast<uint32_t>(getpid()), static_cast<uint32_t>(a.thread), a.correlation, 0});
  }
  if (a.kind == ActivityKind::call && a.event != 0 && (has(kinds, kSynchronization) || has(kinds, kCudaEvent))) {
    ActivityCudaEvent r{};  // gives the event's stream, so that Kineto knows which stream a wait waits for
    r.kind = kCudaEvent;
    r.correlationId = a.correlation;
    r.contextId = context_of(a), r.streamId = a.stream, r.deviceId = static_cast<uint32_t>(a.device);
    r.eventId = static_cast<uint32_t>(a.event);
    r.cudaEventSyncId = kNotOfOne;
    append(group, r);
  }
  if (a.kind != ActivityKind::wait || !has(kinds, kSynchronization)) return;
  ActivitySynchronization r{};
  r.kind = kSynchronization;
  r.type = synchronization_type(a.name);
  r.start = start, r.end = end;
  r.correlationId = a.correlation;
  r.contextId = context_of(a);
  r.streamId = r.type == kStreamSynchronize || r.type == kStreamWaitEvent ? a.stream : kNotOfOne;
  r.cudaEventId = a.event != 0 ? static_cast<uint32_t>(a.event) : kNotOfOne;
  r.cudaEventSyncId = kNotOfOne;
  append(group, r);
}

}  // namespace gpucast::vgpu::cupti

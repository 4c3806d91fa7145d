#include "src/vgpu/core/clock.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/process.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {
namespace {

constexpr int64_t kCallNs =
    2500;  // as src/schedule/step_schedule.cc: what a launch costs the host more with NVIDIA's driver than with ours
constexpr double kLatencyNs = 4000;   // same: from a launch to the kernel's start on an idle GPU
constexpr size_t kQueueDepth = 1024;  // launches that a stream takes before the next one waits
constexpr size_t kQueueGoesOn = 960;  // how many are left then
constexpr int64_t kLeastSleepNs = 150'000;
constexpr int64_t kCoinNs = 400'000;      // what calls cost is waited for in such pieces
constexpr int64_t kSpinNs = 80'000;       // the end of a wait, which sleeping would miss
constexpr double kUnknownNs = 5000;       // a launch that nobody can say anything about
constexpr uint32_t kDefaultStreamId = 7;  // as CUPTI numbers them
constexpr uint64_t kBlocking = 0;         // flags of a stream that waits for the default stream

int64_t time_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

// Answers of `gpucast run` at the other end of a socket: a line asked, a line answered.
class Server {
 public:
  explicit Server(std::string path) : path_(std::move(path)) {}

  std::string ask(const std::string& question) {
    if (pid_ != getpid()) connect_anew();
    if (socket_ < 0) return {};
    const std::string line = question + '\n';
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t count = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return gone();
      sent += static_cast<size_t>(count);
    }
    std::string answer;
    for (char byte = 0; answer.empty() || answer.back() != '\n'; answer += byte) {
      const ssize_t count = recv(socket_, &byte, 1, 0);
      if (count < 0 && errno == EINTR) {
        byte = 0;
        continue;
      }
      if (count <= 0) return gone();
    }
    return answer;
  }

 private:
  void connect_anew() {
    pid_ = getpid();
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_ < 0 || path_.size() >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) gone();
  }
  std::string gone() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
    return {};
  }

  std::string path_;
  pid_t pid_ = 0;
  int socket_ = -1;
};

struct Clock {
  ClockMode mode = ClockMode::none;
  int64_t start_ns = 0;
  std::function<std::string(const std::string&)> ask;

  std::mutex mutex;
  GpuTimeline gpu{0, false};
  std::unordered_map<uint64_t, uint32_t> streams;  // the default streams of each device by 1 + 2 x device (legacy), 2 + 2 x device
  std::vector<uint32_t> blocking;                  // streams that wait for the legacy default stream, as that does for them
  std::unordered_map<uint64_t, GpuTimeline::EventId> events;
  struct Known {
    GpuTimeline::Work work;
    const char* name;
  };
  std::unordered_map<uint64_t, Known> known;
  std::unordered_set<std::string> names;  // live as long as the process
  std::atomic<bool> tells = false;        // a profiler: the host's time runs as the machine's clock as long as it listens
  int64_t told_start_ns = 0;              // the clock's start, as a profiler is told: since 1970
  std::unordered_map<size_t, Activity> running;
  std::vector<Activity> over;
  struct HostCall {
    HostFunction host;
    GpuTimeline::EventId due;
  };
  std::deque<HostCall> host_calls;  // in the order in which they were asked for; the first may be running
  bool host_thread = false;
  std::condition_variable host_calls_changed;
};

std::atomic<Clock*> g_clock{nullptr};
std::atomic<int> g_state{0};  // 0: not looked for; 1: none; 2: there is one
std::atomic<int64_t> g_ahead_ns{0};
static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t));
std::atomic<uint32_t> g_correlations{0};
std::atomic<void (*)(uint32_t)> g_on_call{nullptr};
thread_local uint32_t t_graph_correlation = 0;  // of the launch that is being carried out
thread_local uint64_t t_graph = 0;

using Lock = std::unique_lock<std::mutex>;

Clock* make_clock() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_state.load() != 0) return g_clock.load();
  const DeviceProfile& card = profile();
  if (card.clock != 0) {
    auto* clock = new Clock;  // never destroyed: used until the very end
    clock->mode = static_cast<ClockMode>(card.clock);
    clock->start_ns = time_of(CLOCK_MONOTONIC);
    auto server = std::make_shared<Server>(card.clock_socket);
    clock->ask = [server](const std::string& question) { return server->ask(question); };
    g_clock = clock;
  }
  g_state = card.clock != 0 ? 2 : 1;
  return g_clock.load();
}

Clock* the_clock() {
  const int state = g_state.load(std::memory_order_acquire);
  return state == 1 ? nullptr : state == 2 ? g_clock.load(std::memory_order_relaxed) : make_clock();
}

// ---- the host's time ----------------------------------------------------------------------------------------------------------------

double now_ns(const Clock& clock) {
  return static_cast<double>(time_of(CLOCK_MONOTONIC) - clock.start_ns + g_ahead_ns.load(std::memory_order_relaxed));
}

// Until nothing is left: asleep, and awake at the end. Giving the processor away there would cost a time slice where others want it.
template <class Left>
void pause_until(const Left& left_ns) {
  for (int64_t left = left_ns(); left > 0; left = left_ns()) {
    if (left > kLeastSleepNs) {
      const timespec pause{(left - kSpinNs) / 1'000'000'000, (left - kSpinNs) % 1'000'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

// The host goes on at this time. No lock is held.
void reach(const Clock& clock, double until_ns) {
  if (clock.mode == ClockMode::warp && !clock.tells.load(std::memory_order_relaxed)) {
    const double left = until_ns - now_ns(clock);
    if (left > 0) g_ahead_ns.fetch_add(static_cast<int64_t>(left) + 1);
    return;
  }
  pause_until([&] { return static_cast<int64_t>(until_ns - now_ns(clock)); });
}

// A call into the driver has its price, which is paid in larger coins; at once, and exactly, where a profiler listens.
void pay_for_call(const Clock& clock) {
  const int64_t begin = time_of(CLOCK_MONOTONIC);
  if (clock.tells.load(std::memory_order_relaxed)) return pause_until([&] { return begin + kCallNs - time_of(CLOCK_MONOTONIC); });
  const int64_t ahead = g_ahead_ns.fetch_add(kCallNs, std::memory_order_relaxed) + kCallNs;
  if (clock.mode != ClockMode::real_time || ahead < kCoinNs) return;
  pause_until([&] { return begin + ahead - time_of(CLOCK_MONOTONIC); });
  g_ahead_ns.fetch_sub(time_of(CLOCK_MONOTONIC) - begin);
}

// ---- streams and what is known of launches ----------------------------------------------------------------------------------------------

struct Place {
  uint64_t key;
  int device;
  uint32_t id;
  unsigned flags;
  int priority;
};

// Asked before the lock is taken: the other way round is never done.
Place place_of(uint64_t handle) {
  StreamInfo info{};
  if (stream_info(handle, &info) != kSuccess) info.device = current_device();
  const auto device = static_cast<uint64_t>(info.device);
  if (handle <= 1) return {1 + 2 * device, info.device, kDefaultStreamId, kBlocking, 0};
  if (handle == 2) return {2 + 2 * device, info.device, kDefaultStreamId + 1, 1, 0};
  return {handle, info.device, static_cast<uint32_t>(info.id) + 12, info.flags, info.priority};
}

uint32_t stream_at(Clock& clock, const Place& place) {
  const auto [found, added] = clock.streams.try_emplace(place.key, 0);
  if (added) {
    found->second = clock.gpu.add_stream(place.priority);
    if (place.key > 2 + 2 * kMostDevices && place.flags == kBlocking) clock.blocking.push_back(found->second);
  }
  return found->second;
}

// The legacy default stream and blocking streams wait for each other.
void wait_for_default(Clock& clock, const Place& place, uint32_t stream, double now) {
  if (clock.blocking.empty()) return;
  const auto join = [&](uint32_t other) {
    if (other == stream || clock.gpu.pending(other) == 0) return;
    const auto event = clock.gpu.record(other, now);
    clock.gpu.wait(stream, event, now);
    clock.gpu.release(event);
  };
  if (place.id == kDefaultStreamId) {
    for (const uint32_t other : clock.blocking) join(other);
  } else if (place.flags == kBlocking) {
    const auto found = clock.streams.find(1 + 2 * static_cast<uint64_t>(place.device));
    if (found != clock.streams.end()) join(found->second);
  }
}

// "12345.6 0 0.9": duration, engine, demand.
GpuTimeline::Work parse_answer(const std::string& answer) {
  GpuTimeline::Work work;
  int engine = 0;
  if (std::sscanf(answer.c_str(), "%lf %d %lf", &work.duration_ns, &engine, &work.demand) != 3 || !(work.duration_ns >= 0) || engine < 0 ||
      engine >= static_cast<int>(Engine::count_))
    return {kUnknownNs, Engine::compute, 1, 0};
  work.engine = static_cast<Engine>(engine);
  return work;
}

// What is known under this hash, or what the server answers to `question`.
template <class Question>
Clock::Known known_work(Clock& clock, uint64_t hash, const char* name, const Question& question) {
  const Lock lock(clock.mutex);
  const auto found = clock.known.find(hash);
  if (found != clock.known.end()) return found->second;
  const Clock::Known made{parse_answer(clock.ask(question())), clock.names.emplace(name).first->c_str()};
  clock.known.emplace(hash, made);
  return made;
}

// ---- what a profiler is told
// -------------------------------------------------------------------------------------------------------------

uint64_t this_thread() {
  thread_local const auto kThread = static_cast<uint64_t>(syscall(SYS_gettid));
  return kThread;
}

int64_t unix_ns(const Clock& clock, double at_ns) { return clock.told_start_ns + static_cast<int64_t>(at_ns); }

uint32_t next_correlation() {
  const uint32_t correlation = ++g_correlations;
  if (const auto told = g_on_call.load(std::memory_order_relaxed)) told(correlation);
  return correlation;
}

// Of a call that asks for no work: only a profiler hears of it. 0: none listens, or the call is the inside of a graph's launch.
uint32_t told_correlation() {
  return t_graph_correlation == 0 && g_on_call.load(std::memory_order_relaxed) != nullptr ? next_correlation() : 0;
}

void tell_call(Clock& clock, ActivityKind kind, uint32_t correlation, const char* function, bool driver, double from_ns, double to_ns,
               const Place* place = nullptr, uint64_t event = 0) {
  if (!clock.tells) return;
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
  clock.over.push_back(call);
}

// ---- waiting -------------------------------------------------------------------------------------------------------------------------

// The host waits until `done`, which is expected at `when`; both are asked with the lock held.
template <class Done, class When>
void wait_until(Clock& clock, const Done& done, const When& when) {
  for (;;) {
    double until = 0;
    {
      const Lock lock(clock.mutex);
      const double now = now_ns(clock);
      clock.gpu.advance(now);
      if (done()) return;
      until = std::max(when(), now + 1);
    }
    reach(clock, until);
  }
}

// Functions of the host that a stream has come to, one after the other.
void run_host_calls(Clock& clock) {
  constexpr std::chrono::milliseconds kLook{1};
  Lock lock(clock.mutex);
  for (;;) {
    const auto due = [&] {
      clock.gpu.advance(now_ns(clock));
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
    const Clock::HostCall call = *found;
    lock.unlock();
    call.host.function(call.host.data);
    lock.lock();
    clock.gpu.release(call.due);
    clock.host_calls.erase(
        std::find_if(clock.host_calls.begin(), clock.host_calls.end(), [&](const auto& one) { return one.due == call.due; }));
    clock.host_calls_changed.notify_all();
  }
}

// All that are due have been called. Who waits is no host function itself.
void finish_host_calls(Clock& clock) {
  Lock lock(clock.mutex);
  clock.host_calls_changed.notify_all();
  clock.host_calls_changed.wait(lock, [&] {
    return std::none_of(clock.host_calls.begin(), clock.host_calls.end(), [&](const auto& call) { return clock.gpu.done(call.due); });
  });
}

template <class Done, class When>
void host_waits(const char* function, uint64_t event, const Place* place, const Done& done, const When& when) {
  Clock& clock = *the_clock();
  const double from = now_ns(clock);
  wait_until(clock, done, when);
  finish_host_calls(clock);
  const uint32_t correlation = next_correlation();
  const Lock lock(clock.mutex);
  tell_call(clock, ActivityKind::wait, correlation, function, false, from, now_ns(clock), place, event);
}

void on_done(Clock& clock, size_t work, const GpuTimeline::Span& span) {
  const auto found = clock.running.find(work);
  if (found == clock.running.end()) return;
  found->second.start_ns = unix_ns(clock, span.start_ns);
  found->second.end_ns = unix_ns(clock, span.end_ns);
  clock.over.push_back(found->second);
  clock.running.erase(found);
}

}  // namespace

bool has_clock_now() { return the_clock() != nullptr; }
bool has_clock() { return has_clock_now(); }

ClockWork clock_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                       const KernelResources& resources) {
  uint64_t hash = std::hash<std::string_view>{}(name);
  for (int i = 0; i < 3; ++i) hash = mixed(hash, uint64_t{grid[i]} << 32 | block[i]);
  hash = mixed(hash, dynamic_shared_bytes);
  const Clock::Known known = known_work(*the_clock(), hash, name, [&] {
    char sizes[128];
    std::snprintf(sizes, sizeof sizes, "kernel %u %u %u %u %u %u %zu ", grid[0], grid[1], grid[2], block[0], block[1], block[2],
                  dynamic_shared_bytes);
    return std::string(sizes) + name;
  });
  ClockWork out{known.work, {}};
  Activity& a = out.activity;
  a.kind = ActivityKind::kernel;
  a.name = known.name;
  std::copy_n(grid, 3, a.grid);
  std::copy_n(block, 3, a.block);
  a.dynamic_shared_bytes = dynamic_shared_bytes;
  a.registers = static_cast<int>(resources.registers);
  a.static_shared_bytes = static_cast<size_t>(resources.static_shared_bytes);
  a.local_bytes = static_cast<size_t>(resources.local_bytes);
  return out;
}

ClockWork clock_call(const char* library, const char* name, std::string_view arguments_json) {
  uint64_t hash = std::hash<std::string_view>{}(arguments_json);
  hash = mixed(mixed(hash, std::hash<std::string_view>{}(name)), std::hash<std::string_view>{}(library));
  const Clock::Known known = known_work(*the_clock(), hash, name, [&] {
    return "call " + std::string(library) + ' ' + name + ' ' + std::string(arguments_json.empty() ? "{}" : arguments_json);
  });
  ClockWork out{known.work, {}};
  out.activity.kind = ActivityKind::kernel;
  out.activity.name = known.name;
  // Its kernels' shape is not known: a block on each multiprocessor that they keep busy.
  std::fill_n(out.activity.grid, 3, 1);
  std::fill_n(out.activity.block, 3, 1);
  out.activity.grid[0] = static_cast<unsigned>(std::max(1L, std::lround(known.work.demand * profile().multiprocessors)));
  return out;
}

ClockWork clock_copy(int kind, size_t size_bytes, bool pageable) {
  const uint64_t hash = mixed(mixed(mixed(0xc0b1, static_cast<uint64_t>(kind)), size_bytes), pageable ? 1 : 0);
  const Clock::Known known = known_work(*the_clock(), hash, "memcpy", [&] {
    return "copy " + std::to_string(kind) + ' ' + std::to_string(size_bytes) + (pageable ? " 1" : " 0");
  });
  ClockWork out{known.work, {}};
  out.activity.kind = ActivityKind::copy;
  out.activity.name = known.name;
  out.activity.copy_kind = kind;
  out.activity.size_bytes = size_bytes;
  return out;
}

ClockWork clock_fill(size_t size_bytes) {
  const Clock::Known known =
      known_work(*the_clock(), mixed(0xf111, size_bytes), "memset", [&] { return "fill " + std::to_string(size_bytes); });
  ClockWork out{known.work, {}};
  out.activity.kind = ActivityKind::fill;
  out.activity.name = known.name;
  out.activity.size_bytes = size_bytes;
  return out;
}

void clock_submit(const ClockWork& work, uint64_t stream, const char* function, bool driver) {
  Clock& clock = *the_clock();
  const Place place = place_of(stream);
  const bool in_graph = t_graph_correlation != 0;
  const uint32_t correlation = in_graph ? t_graph_correlation : next_correlation();
  uint32_t number = 0;
  bool full = false;
  {
    const Lock lock(clock.mutex);
    const double now = now_ns(clock);
    clock.gpu.advance(now);
    number = stream_at(clock, place);
    wait_for_default(clock, place, number, now);
    GpuTimeline::Work asked = work.work;
    asked.card = static_cast<size_t>(place.device);
    const size_t index = clock.gpu.add_work(number, now + kLatencyNs, asked);
    full = !in_graph && clock.gpu.pending(number) >= kQueueDepth;
    if (clock.tells) {
      Activity activity = work.activity;
      activity.correlation = correlation;
      activity.device = place.device;
      activity.stream = place.id;
      activity.graph = t_graph;
      clock.running.emplace(index, activity);
      if (!in_graph) tell_call(clock, ActivityKind::call, correlation, function, driver, now, now + kCallNs, &place);
    }
  }
  if (in_graph) return;
  pay_for_call(clock);
  if (!full) return;
  wait_until(
      clock, [&] { return clock.gpu.pending(number) <= kQueueGoesOn; }, [&] { return clock.gpu.when_pending(number, kQueueGoesOn); });
}

void clock_begin_graph(uint64_t exec, uint64_t stream) {
  Clock& clock = *the_clock();
  const Place place = place_of(stream);
  t_graph_correlation = next_correlation();
  t_graph = exec;
  {
    const Lock lock(clock.mutex);
    const double now = now_ns(clock);
    tell_call(clock, ActivityKind::call, t_graph_correlation, "cudaGraphLaunch", false, now, now + kCallNs, &place);
  }
  pay_for_call(clock);
}

void clock_end_graph() { t_graph_correlation = 0, t_graph = 0; }

void clock_record(uint64_t event, uint64_t stream) {
  Clock& clock = *the_clock();
  const Place place = place_of(stream);
  const uint32_t correlation = told_correlation();
  const Lock lock(clock.mutex);
  const double now = now_ns(clock);
  if (correlation != 0) tell_call(clock, ActivityKind::call, correlation, "cudaEventRecord", false, now, now, &place, event);
  clock.gpu.advance(now);
  const uint32_t number = stream_at(clock, place);
  wait_for_default(clock, place, number, now);
  const GpuTimeline::EventId made = clock.gpu.record(number, now);
  const auto [found, added] = clock.events.try_emplace(event, made);
  if (!added) clock.gpu.release(std::exchange(found->second, made));
  clock.gpu.advance(now);
}

void clock_stream_wait(uint64_t stream, uint64_t event) {
  Clock& clock = *the_clock();
  const Place place = place_of(stream);
  const uint32_t correlation = told_correlation();
  const Lock lock(clock.mutex);
  const double now = now_ns(clock);
  if (correlation != 0) tell_call(clock, ActivityKind::wait, correlation, "cudaStreamWaitEvent", false, now, now, &place, event);
  const auto found = clock.events.find(event);
  if (found == clock.events.end() || clock.gpu.done(found->second)) return;
  clock.gpu.wait(stream_at(clock, place), found->second, now);
}

void clock_forget(uint64_t event) {
  Clock& clock = *the_clock();
  const Lock lock(clock.mutex);
  const auto found = clock.events.find(event);
  if (found == clock.events.end()) return;
  clock.gpu.release(found->second);
  clock.events.erase(found);
}

void clock_call_host(HostFunction host, uint64_t stream) {
  Clock& clock = *the_clock();
  const Place place = place_of(stream);
  const Lock lock(clock.mutex);
  const double now = now_ns(clock);
  clock.gpu.advance(now);
  const uint32_t number = stream_at(clock, place);
  clock.host_calls.push_back({host, clock.gpu.record(number, now)});
  if (!std::exchange(clock.host_thread, true)) std::thread([&clock] { run_host_calls(clock); }).detach();
  clock.host_calls_changed.notify_all();
}

void clock_wait_stream(uint64_t stream) {
  Clock& clock = *the_clock();
  const Place place = place_of(stream);
  std::vector<uint32_t> numbers;
  {
    const Lock lock(clock.mutex);
    numbers.push_back(stream_at(clock, place));
    if (place.id == kDefaultStreamId) numbers.insert(numbers.end(), clock.blocking.begin(), clock.blocking.end());
  }
  const auto all_done = [&] {
    return std::all_of(numbers.begin(), numbers.end(), [&](uint32_t one) { return clock.gpu.pending(one) == 0; });
  };
  host_waits("cudaStreamSynchronize", 0, &place, all_done, [&] {
    double when = 0;
    for (const uint32_t one : numbers) when = std::max(when, clock.gpu.when_pending(one, 0));
    return when;
  });
}

void clock_wait_event(uint64_t event) {
  Clock& clock = *the_clock();
  const auto found_now = [&]() -> std::optional<GpuTimeline::EventId> {
    const auto found = clock.events.find(event);
    return found == clock.events.end() ? std::nullopt : std::optional(found->second);
  };
  host_waits(
      "cudaEventSynchronize", event, nullptr, [&] { return !found_now() || clock.gpu.done(*found_now()); },
      [&] { return clock.gpu.when_done(*found_now()); });
}

void clock_wait_device() {
  Clock& clock = *the_clock();
  const auto idle = [&] {
    return std::all_of(clock.streams.begin(), clock.streams.end(), [&](const auto& one) { return clock.gpu.pending(one.second) == 0; });
  };
  host_waits("cudaDeviceSynchronize", 0, nullptr, idle, [&] { return clock.gpu.when_all_done(); });
}

bool clock_stream_done(uint64_t stream) {
  Clock& clock = *the_clock();
  const Place place = place_of(stream);
  const Lock lock(clock.mutex);
  clock.gpu.advance(now_ns(clock));
  return clock.gpu.pending(stream_at(clock, place)) == 0;
}

bool clock_event_done(uint64_t event) {
  Clock& clock = *the_clock();
  const Lock lock(clock.mutex);
  clock.gpu.advance(now_ns(clock));
  const auto found = clock.events.find(event);
  return found == clock.events.end() || clock.gpu.done(found->second);
}

double clock_event_ns(uint64_t event) {
  Clock& clock = *the_clock();
  const Lock lock(clock.mutex);
  clock.gpu.advance(now_ns(clock));
  const auto found = clock.events.find(event);
  return found == clock.events.end() ? -1 : clock.gpu.event_ns(found->second);
}

void start_clock(ClockMode mode, std::function<std::string(const std::string&)> ask) {
  static auto* g_kept = new std::vector<Clock*>;  // tests only: a few, and a thread of one may still look at it
  Clock* clock = g_kept->emplace_back(new Clock);
  clock->mode = mode;
  clock->start_ns = time_of(CLOCK_MONOTONIC);
  clock->ask = std::move(ask);
  g_ahead_ns = 0;
  g_clock = clock;
  g_state = 2;
}

void stop_clock() {
  g_clock = nullptr;
  g_state = 1;
}

void record_activities(bool on, void (*on_call)(uint32_t correlation)) {
  Clock* clock = the_clock();
  if (clock == nullptr) return;
  g_on_call = on ? on_call : nullptr;
  const Lock lock(clock->mutex);
  clock->tells = on;
  if (on) {
    clock->told_start_ns = time_of(CLOCK_REALTIME) - static_cast<int64_t>(now_ns(*clock));
    clock->gpu.on_done([clock](size_t work, const GpuTimeline::Span& span) { on_done(*clock, work, span); });
  } else {
    clock->running.clear();
  }
}

std::vector<Activity> take_activities() {
  Clock* clock = the_clock();
  if (clock == nullptr) return {};
  std::vector<Activity> out;
  {
    const Lock lock(clock->mutex);
    clock->gpu.advance(now_ns(*clock));
    out.swap(clock->over);
  }
  std::stable_sort(out.begin(), out.end(), [](const Activity& a, const Activity& b) { return a.correlation < b.correlation; });
  return out;
}

void lock_clock() {
  if (Clock* clock = g_clock.load()) clock->mutex.lock();
}
void unlock_clock() {
  if (Clock* clock = g_clock.load()) clock->mutex.unlock();
}

}  // namespace gpucast::vgpu

const int64_t* gpucast_vgpu_time_ahead_ns() { return reinterpret_cast<const int64_t*>(&gpucast::vgpu::g_ahead_ns); }

void gpucast_vgpu_set_back(int64_t ns) { gpucast::vgpu::g_ahead_ns.fetch_sub(ns); }

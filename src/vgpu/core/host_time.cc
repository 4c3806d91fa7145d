#include "src/vgpu/core/host_time.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <utility>

#include "src/vgpu/core/clock_state.h"
#include "src/vgpu/core/host_speed.h"

namespace gpucast::vgpu {
namespace {

constexpr int64_t kLeastSleepNs = 150'000;
constexpr int64_t kSpinNs = 80'000;      // the last part of a wait, too short to sleep
constexpr int64_t kPaymentNs = 400'000;  // real time: the host waits for the costs of calls in pieces of this length

std::atomic<int64_t> g_ahead_ns{0};
std::atomic<int64_t> g_left_out_ns{0};
std::atomic<int64_t> g_last_read_ns{0};  // of the monotonic clock, by the script

// ---- What the capture layer took ---------------------------------------------------------------------------------------------------

// Sums, to which the capture layer adds itself.
struct Interruptions {
  std::atomic<int64_t> measured_ns{0};
  std::atomic<int64_t> usual_ns{0};  // not measured each time; right while this machine's yardstick is `yardstick_ns`
  std::atomic<int64_t> yardstick_ns{0};
};
static_assert(sizeof(Interruptions) == 3 * sizeof(int64_t) && std::atomic<int64_t>::is_always_lock_free);

Interruptions g_interruptions;
std::atomic<int64_t> g_counted_measured_ns{0}, g_counted_usual_ns{0};  // taken into account

int64_t not_counted(const std::atomic<int64_t>& sum, std::atomic<int64_t>* counted) {
  const int64_t now = sum.load(std::memory_order_relaxed);
  return now - counted->exchange(now, std::memory_order_relaxed);
}

struct Interrupted {
  int64_t measured_ns = 0, usual_ns = 0;
};

// Since the last call. `yardstick_ns`: of this machine now; 0: not measured.
Interrupted interrupted(const HostTime& time, double yardstick_ns = 0) {
  const auto* clock = started_clock();
  if (clock == nullptr || &clock->host != &time) return {};  // a thread of a clock that a test has stopped
  const int64_t measured_ns = not_counted(g_interruptions.measured_ns, &g_counted_measured_ns);
  const auto usual_ns = static_cast<double>(not_counted(g_interruptions.usual_ns, &g_counted_usual_ns));
  const auto usual_yardstick_ns = static_cast<double>(g_interruptions.yardstick_ns.load(std::memory_order_relaxed));
  const double slower = yardstick_ns > 0 && usual_yardstick_ns > 0 ? yardstick_ns / usual_yardstick_ns : 1;
  return {measured_ns, std::llround(usual_ns * slower)};
}

// Usual times are not exact. This part of the work that was not measured is the script's in any case.
constexpr double kLeastScript = 1.0 / 6;

// ---- The processor's work ----------------------------------------------------------------------------------------------------------

constexpr int64_t kMeasureAgainNs = 2'500'000;  // of the processor's work

// How often this thread waited for a lock, a disk or another thread.
int64_t times_slept() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// How long this thread has waited for the processor so far. Reading it takes a while.
int64_t waited_for_processor_ns() {
  struct File {
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ~File() {
      if (file >= 0) close(file);
    }
  };
  thread_local const File kStatistics;
  char text[64] = {};
  if (kStatistics.file < 0 || pread(kStatistics.file, text, sizeof text - 1, 0) <= 0) return 0;
  long long ran_ns = 0, waited_ns = 0;
  return std::sscanf(text, "%lld %lld", &ran_ns, &waited_ns) == 2 ? waited_ns : 0;
}

// Up to where the waits of this thread are taken into account.
struct Waits {
  int64_t slept = -1, counted_ns = 0;
};
thread_local Waits t_waits;

// Of `idle_ns`, in which no thread of this process worked, the part in which this one waited for the processor, not for a lock or a disk.
int64_t preempted_ns(int64_t idle_ns) {
  const int64_t slept = times_slept();
  if (std::exchange(t_waits.slept, slept) == slept) {
    t_waits.counted_ns += idle_ns;
    return idle_ns;
  }
  const int64_t waited_ns = waited_for_processor_ns();
  return std::clamp<int64_t>(waited_ns - std::exchange(t_waits.counted_ns, waited_ns), 0, idle_ns);
}

int64_t script_cpu_ns() { return machine_ns(CLOCK_PROCESS_CPUTIME_ID) - g_left_out_ns.load(std::memory_order_relaxed); }

struct Worked {
  std::mutex mutex;
  HostSpeed speed;
  double share = 1;                 // of `speed`
  int64_t wall_ns = 0, cpu_ns = 0;  // up to which time is taken into account
  int64_t unmeasured_ns = 0;
  double lately_busy_ns = 0, lately_preempted_ns = 0;
};
Worked& worked() {
  static auto* const kWorked = new Worked;  // used until the very end
  return *kWorked;
}

bool is_scaled(const HostTime& time) {
  return time.mode == ClockMode::warp && time.yardstick_ns > 0 && !time.exact.load(std::memory_order_relaxed);
}

constexpr double kLatelyNs = 20e6;

// The part of the time in which this process wanted the processor and had it, lately.
double busy_part(const Worked& work) {
  const double wanted_ns = work.lately_busy_ns + work.lately_preempted_ns;
  return wanted_ns > 0 ? work.lately_busy_ns / wanted_ns : 1;
}

void add_lately(int64_t busy_ns, int64_t preempted_ns, Worked* work) {
  work->lately_busy_ns += static_cast<double>(busy_ns);
  work->lately_preempted_ns += static_cast<double>(preempted_ns);
  if (work->lately_busy_ns + work->lately_preempted_ns < kLatelyNs) return;
  work->lately_busy_ns /= 2;
  work->lately_preempted_ns /= 2;
}

// Neither the time nor the work of this counts.
void measure_speed(const HostTime& time, Worked* work) {
  const int64_t begin = machine_ns(CLOCK_MONOTONIC);
  work->speed.add(yardstick_ns());
  work->share = work->speed.share(time.yardstick_ns);
  work->unmeasured_ns = 0;
  t_waits = {times_slept(), waited_for_processor_ns()};
  work->wall_ns = machine_ns(CLOCK_MONOTONIC), work->cpu_ns = script_cpu_ns();
  g_ahead_ns.fetch_sub(work->wall_ns - begin, std::memory_order_relaxed);
}

// In real time this has passed: the host waits less for the costs of calls.
void owe_less(int64_t ns) {
  int64_t owed = g_ahead_ns.load(std::memory_order_relaxed);
  while (!g_ahead_ns.compare_exchange_weak(owed, std::max<int64_t>(0, owed - ns), std::memory_order_relaxed)) continue;
}

// Takes the time since the last call into account. The last `own_ns` of it were gpucast's own. Returns the monotonic clock. While the
// processor does not work (a sleep, a read from disk), the host of a card is no faster.
int64_t settle(const HostTime& time, int64_t own_ns) {
  if (!is_scaled(time)) {
    const Interrupted ours = interrupted(time);
    if (time.exact.load(std::memory_order_relaxed)) {
      // A profiler's times must not run back.
    } else if (time.mode == ClockMode::warp) {
      own_ns += ours.measured_ns + ours.usual_ns;
    } else {
      owe_less(ours.measured_ns + ours.usual_ns);
    }
    g_ahead_ns.fetch_sub(own_ns, std::memory_order_relaxed);
    return machine_ns(CLOCK_MONOTONIC);
  }
  Worked& work = worked();
  const std::lock_guard lock(work.mutex);
  if (work.wall_ns == 0) measure_speed(time, &work);
  const Interrupted ours = interrupted(time, static_cast<double>(time.yardstick_ns) / work.share);
  const int64_t now = machine_ns(CLOCK_MONOTONIC), cpu = script_cpu_ns(), wall = now - work.wall_ns;
  const auto unmeasured = static_cast<double>(std::max<int64_t>(0, std::min(wall - own_ns, cpu - work.cpu_ns) - ours.measured_ns));
  const int64_t interrupted_ns = ours.measured_ns + std::min<int64_t>(ours.usual_ns, std::llround(unmeasured * (1 - kLeastScript)));
  own_ns += interrupted_ns;
  const int64_t own = std::min(own_ns, wall);
  const int64_t busy = std::clamp<int64_t>(cpu - work.cpu_ns - interrupted_ns, 0, wall - own);  // an interruption is work of the processor
  // While others had the processor, the host of a card would have worked on.
  const int64_t preempted = preempted_ns(wall - own - busy);
  add_lately(busy, preempted, &work);
  // An earlier call took this part of our time for the script's work.
  const double counted = static_cast<double>(own_ns - own) * busy_part(work);
  g_ahead_ns.fetch_sub(own + preempted + std::llround(static_cast<double>(busy) * (1 - work.share) + counted * work.share),
                       std::memory_order_relaxed);
  work.wall_ns = now, work.cpu_ns = cpu;
  work.unmeasured_ns += busy;
  if (work.unmeasured_ns > kMeasureAgainNs) measure_speed(time, &work);
  return work.wall_ns;
}

// Waits until nothing is left: sleeps first, then spins. It does not yield the processor: other threads would take it for a time slice.
template <class Left>
void pause_until(const Left& left_ns) {
  for (int64_t left = left_ns(); left > 0; left = left_ns()) {
    if (left > kLeastSleepNs) {
      const timespec pause{(left - kSpinNs) / 1'000'000'000, (left - kSpinNs) % 1'000'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

}  // namespace

int64_t machine_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

double host_now_ns(const HostTime& time) {
  const int64_t now = settle(time, 0);
  return static_cast<double>(now - time.start_ns + g_ahead_ns.load(std::memory_order_relaxed));
}

void host_wait_until(const HostTime& time, double until_ns) {
  if (time.mode == ClockMode::warp && !time.exact.load(std::memory_order_relaxed)) {
    const double left = until_ns - host_now_ns(time);
    if (left > 0) g_ahead_ns.fetch_add(static_cast<int64_t>(left) + 1);
    return;
  }
  pause_until([&] { return static_cast<int64_t>(until_ns - host_now_ns(time)); });
}

void host_pay_for_call(const HostTime& time) {
  const int64_t begin = machine_ns(CLOCK_MONOTONIC);
  if (time.exact.load(std::memory_order_relaxed)) return pause_until([&] { return begin + time.call_ns - machine_ns(CLOCK_MONOTONIC); });
  const int64_t ahead = g_ahead_ns.fetch_add(time.call_ns, std::memory_order_relaxed) + time.call_ns;
  if (time.mode != ClockMode::real_time || ahead < kPaymentNs) return;
  pause_until([&] { return begin + ahead - machine_ns(CLOCK_MONOTONIC); });
  g_ahead_ns.fetch_sub(machine_ns(CLOCK_MONOTONIC) - begin);
}

void host_was_interrupted(const HostTime& time, int64_t ns) {
  if (time.exact.load(std::memory_order_relaxed)) return;
  if (time.mode == ClockMode::warp) {
    settle(time, ns);
  } else {
    owe_less(ns);
  }
}

void leave_out_work(int64_t cpu_ns) { g_left_out_ns.fetch_add(cpu_ns, std::memory_order_relaxed); }

void reset_host_time() {
  g_ahead_ns = g_last_read_ns = 0;
  Worked& work = worked();
  const std::lock_guard lock(work.mutex);
  work.wall_ns = 0, work.speed = {};
}

}  // namespace gpucast::vgpu

int64_t gpucast_vgpu_yardstick_ns() { return gpucast::vgpu::yardstick_ns(); }

int64_t gpucast_vgpu_time_ahead_ns() { return gpucast::vgpu::g_ahead_ns.load(); }

int64_t gpucast_vgpu_host_clock_ns(int clock_id) {
  using namespace gpucast::vgpu;
  const auto* clock = started_clock();
  if (clock == nullptr) return machine_ns(clock_id) + g_ahead_ns.load();
  const int64_t now = settle(clock->host, 0);
  if (clock_id != CLOCK_MONOTONIC) return machine_ns(clock_id) + g_ahead_ns.load();
  // What is left out of a call is an estimate, and may be more than the call took: the clock waits, it never runs backwards.
  const int64_t now_ns = now + g_ahead_ns.load();
  int64_t last = g_last_read_ns.load(std::memory_order_relaxed);
  while (last < now_ns && !g_last_read_ns.compare_exchange_weak(last, now_ns, std::memory_order_relaxed)) continue;
  return std::max(last, now_ns);
}

void gpucast_vgpu_was_interrupted(int64_t ns) { gpucast::vgpu::g_interruptions.measured_ns.fetch_add(ns, std::memory_order_relaxed); }

int64_t* gpucast_vgpu_interruptions() { return reinterpret_cast<int64_t*>(&gpucast::vgpu::g_interruptions); }

void gpucast_vgpu_set_back(int64_t ns) { gpucast::vgpu::g_ahead_ns.fetch_sub(ns); }

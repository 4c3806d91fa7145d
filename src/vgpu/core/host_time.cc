#include "src/vgpu/core/host_time.h"

#include <algorithm>

#include "src/vgpu/core/clock_state.h"

namespace gpucast::vgpu {
namespace {

constexpr int64_t kLeastSleepNs = 150'000;
constexpr int64_t kSpinNs = 80'000;      // the last part of a wait, too short to sleep
constexpr int64_t kPaymentNs = 400'000;  // real time: the host waits for the costs of calls in pieces of this length

std::atomic<int64_t> g_ahead_ns{0};
static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t));

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
  return static_cast<double>(machine_ns(CLOCK_MONOTONIC) - time.start_ns + g_ahead_ns.load(std::memory_order_relaxed));
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
    g_ahead_ns.fetch_sub(ns, std::memory_order_relaxed);
  } else {
    int64_t owed = g_ahead_ns.load(std::memory_order_relaxed);
    while (!g_ahead_ns.compare_exchange_weak(owed, std::max<int64_t>(0, owed - ns), std::memory_order_relaxed)) continue;
  }
}

void reset_host_time() { g_ahead_ns = 0; }

}  // namespace gpucast::vgpu

const int64_t* gpucast_vgpu_time_ahead_ns() { return reinterpret_cast<const int64_t*>(&gpucast::vgpu::g_ahead_ns); }

void gpucast_vgpu_was_interrupted(int64_t ns) {
  using gpucast::vgpu::run_clock;
  if (const auto* clock = run_clock(); clock != nullptr) host_was_interrupted(clock->host, ns);
}

void gpucast_vgpu_set_back(int64_t ns) { gpucast::vgpu::g_ahead_ns.fetch_sub(ns); }

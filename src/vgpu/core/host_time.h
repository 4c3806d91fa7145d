// The host's time in a run with a clock: the machine's, plus what the host waited for without waiting. Internal to the core.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace gpucast::vgpu {

enum class ClockMode : int { none = 0, real_time = 1, warp = 2 };

struct HostTime {
  ClockMode mode = ClockMode::none;
  int64_t start_ns = 0;             // of the machine's monotonic clock
  int64_t call_ns = 0;              // a call costs the host this much more with NVIDIA's driver
  std::atomic<bool> exact = false;  // a profiler records: waits are real and calls cost their time at once
};

int64_t machine_ns(clockid_t clock);
double host_now_ns(const HostTime& time);  // since the start
// The host goes on at this time. No lock is held.
void host_wait_until(const HostTime& time, double until_ns);
// The cost of a call: call_ns.
void host_pay_for_call(const HostTime& time);
void reset_host_time();  // tests: no longer ahead of the machine's clock

}  // namespace gpucast::vgpu

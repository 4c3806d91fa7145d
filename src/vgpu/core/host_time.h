// The host's time in a run with a clock: the machine's time plus the waits that were skipped. Under --warp, time in which the processor
// works runs at the speed of the host of a card. Internal to the core.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace gpucast::vgpu {

enum class ClockMode : int { none = 0, real_time = 1, warp = 2 };

struct HostTime {
  ClockMode mode = ClockMode::none;
  int64_t start_ns = 0;             // of the machine's monotonic clock
  int64_t call_ns = 0;              // the extra cost of a call on the host with NVIDIA's driver
  int64_t yardstick_ns = 0;         // yardstick_ns() on the host of a card (host_speed.h); 0: this machine's speed counts
  std::atomic<bool> exact = false;  // a profiler records: waits are real, and a call's cost is waited for at once
};

int64_t machine_ns(clockid_t clock);
double host_now_ns(const HostTime& time);  // since the clock's start
// Makes the host wait until this time. Call without a lock.
void host_wait_until(const HostTime& time, double until_ns);
// Makes the host wait for the cost of a call: call_ns.
void host_pay_for_call(const HostTime& time);
// gpucast itself took this time. Under --warp it does not count. In real time it has passed, so the host waits less for the costs of calls.
void host_was_interrupted(const HostTime& time, int64_t ns);
// A thread of gpucast's own used the processor this long, while the script's threads went on.
void leave_out_work(int64_t cpu_ns);
void reset_host_time();  // for tests: sets the host's time back to the machine's clock

}  // namespace gpucast::vgpu

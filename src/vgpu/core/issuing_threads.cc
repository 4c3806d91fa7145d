#include "src/vgpu/core/issuing_threads.h"

#include <pthread.h>

#include <ctime>
#include <map>
#include <mutex>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/host_time.h"

namespace gpucast::vgpu {
namespace {

struct Issuing {
  std::mutex mutex;
  uint64_t count = 0;
  std::map<uint64_t, clockid_t> clocks;  // of those that run
  int64_t ended_ns = 0;                  // CPU time of those that have ended
};
Issuing& issuing() {
  static auto* const kIssuing = new Issuing;  // used until the very end
  return *kIssuing;
}

class Thread {
 public:
  Thread() {
    clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
    const bool has_clock = pthread_getcpuclockid(pthread_self(), &clock) == 0;
    const std::lock_guard lock(issuing().mutex);
    number_ = ++issuing().count;
    if (has_clock) issuing().clocks[number_] = clock;
  }
  ~Thread() {
    const int64_t cpu_ns = machine_ns(CLOCK_THREAD_CPUTIME_ID);
    const std::lock_guard lock(issuing().mutex);
    if (issuing().clocks.erase(number_) > 0) issuing().ended_ns += cpu_ns;
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  uint64_t number() const { return number_; }

 private:
  uint64_t number_ = 0;
};

}  // namespace

uint64_t issuing_thread() {
  thread_local const Thread kThread;
  return kThread.number();
}

}  // namespace gpucast::vgpu

int64_t gpucast_vgpu_issuing_cpu_ns() {
  using gpucast::vgpu::issuing;
  const std::lock_guard lock(issuing().mutex);
  int64_t sum_ns = issuing().ended_ns;
  for (const auto& [number, clock] : issuing().clocks) sum_ns += gpucast::vgpu::machine_ns(clock);
  return sum_ns;
}

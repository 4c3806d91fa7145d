#include "src/vgpu/core/issuing_threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <ctime>
#include <map>
#include <mutex>
#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/host_time.h"

namespace gpucast::vgpu {
namespace {

struct Issuing {
  std::mutex mutex;
  uint64_t count = 0;
  std::map<uint64_t, clockid_t> clocks;  // of those that run
  int64_t ended_ns = 0;                  // CPU time of those that have ended
  int64_t left_out_ns = 0;
  std::vector<int64_t> samples;

  int64_t cpu_ns() const {
    int64_t sum_ns = ended_ns - left_out_ns;
    for (const auto& [number, clock] : clocks) sum_ns += machine_ns(clock);
    return sum_ns;
  }
};
Issuing& issuing() {
  static auto* const kIssuing = new Issuing;  // used until the very end
  return *kIssuing;
}

constexpr uint32_t kSampledWork = 8;  // one sample for this number of pieces of work
constexpr size_t kMostSamples = 1 << 20;
std::atomic<bool> g_samples{false};
std::atomic<uint32_t> g_submitted{0};  // since the sampling began

void sample() {
  if (g_submitted.fetch_add(1, std::memory_order_relaxed) % kSampledWork != kSampledWork - 1) return;
  const std::lock_guard lock(issuing().mutex);
  if (issuing().samples.size() < kMostSamples) issuing().samples.push_back(issuing().cpu_ns());
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
  if (g_samples.load(std::memory_order_relaxed)) sample();
  return kThread.number();
}

}  // namespace gpucast::vgpu

int64_t gpucast_vgpu_issuing_cpu_ns() {
  using gpucast::vgpu::issuing;
  const std::lock_guard lock(issuing().mutex);
  return issuing().cpu_ns();
}

void gpucast_vgpu_leave_out_cpu(int64_t ns) {
  using gpucast::vgpu::issuing;
  const std::lock_guard lock(issuing().mutex);
  issuing().left_out_ns += ns;
}

int64_t gpucast_vgpu_sample_cpu(int64_t* samples_ns, int64_t most) {
  using namespace gpucast::vgpu;
  const std::lock_guard lock(issuing().mutex);
  const auto count = std::min(most, static_cast<int64_t>(issuing().samples.size()));
  std::copy_n(issuing().samples.begin(), count, samples_ns);
  issuing().samples.clear();
  g_submitted = 0;
  g_samples = true;
  return count;
}

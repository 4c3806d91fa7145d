#include "src/vgpu/core/issuing_threads.h"

#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/host_time.h"

namespace gpucast::vgpu {
namespace {

void work_for(int64_t ns) {
  const int64_t begin = machine_ns(CLOCK_THREAD_CPUTIME_ID);
  while (machine_ns(CLOCK_THREAD_CPUTIME_ID) - begin < ns) continue;
}

constexpr int64_t kMs = 1'000'000;

TEST(IssuingThreads, TheirCpuTimeCountsAlsoWhenTheyHaveEnded) {
  issuing_thread();
  const int64_t begin = gpucast_vgpu_issuing_cpu_ns();
  std::thread([] {
    issuing_thread();
    work_for(20 * kMs);
  }).join();
  const int64_t submitted = gpucast_vgpu_issuing_cpu_ns() - begin;
  EXPECT_GE(submitted, 20 * kMs);
  std::thread([] { work_for(200 * kMs); }).join();
  EXPECT_LT(gpucast_vgpu_issuing_cpu_ns() - begin, submitted + 100 * kMs) << "a thread that submits nothing";
}

TEST(IssuingThreads, EachHasANumber) {
  const uint64_t first = issuing_thread();
  uint64_t second = 0;
  std::thread([&] { second = issuing_thread(); }).join();
  EXPECT_EQ(issuing_thread(), first);
  EXPECT_NE(second, first);
}

}  // namespace
}  // namespace gpucast::vgpu

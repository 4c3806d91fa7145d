#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/base/bytes.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/pools.h"

namespace gpucast::vgpu {
namespace {

uint64_t alloc(size_t size) {
  uint64_t address = 0;
  EXPECT_EQ(device_alloc(size, &address), Status::ok);
  return address;
}

TEST(Memory, CountsInStepsOf2MiB) {
  const uint64_t before = memory_info().allocated_bytes;
  const uint64_t a = alloc(3 * kMiB);
  EXPECT_EQ(memory_info().allocated_bytes - before, 4 * kMiB);
  EXPECT_EQ(a % (2 * kMiB), 0u);
  Range range;
  EXPECT_TRUE(find_device_range(a + 3 * kMiB, &range));
  EXPECT_EQ(range.address, a);
  EXPECT_EQ(range.size_bytes, 4 * kMiB);
  EXPECT_EQ(device_free(a + 512), Status::invalid_value);
  EXPECT_EQ(device_free(a), Status::ok);
  EXPECT_EQ(device_free(a), Status::invalid_value);
  EXPECT_FALSE(find_device_range(a, &range));
  EXPECT_EQ(memory_info().allocated_bytes, before);
  EXPECT_GE(memory_info().peak_bytes, before + 4 * kMiB);
}

TEST(Memory, SmallAllocationsShareAStep) {
  const uint64_t before = memory_info().allocated_bytes;
  const uint64_t a = alloc(100), b = alloc(1000);
  EXPECT_EQ(b, a + 512);
  EXPECT_LE(memory_info().allocated_bytes - before, 2 * kMiB);
  Range range;
  EXPECT_TRUE(find_device_range(b + 999, &range));
  EXPECT_EQ(range.address, b);
  EXPECT_EQ(range.size_bytes, 1024u);
  EXPECT_EQ(device_free(a), Status::ok);
  EXPECT_FALSE(find_device_range(a, &range)) << "the step is the virtual GPU's own, not the program's";
  EXPECT_EQ(device_free(b), Status::ok);
}

TEST(Memory, NothingAndTooMuch) {
  uint64_t address = 1;
  EXPECT_EQ(device_alloc(0, &address), Status::ok);
  EXPECT_EQ(address, 0u);
  EXPECT_EQ(device_free(0), Status::ok);
  EXPECT_EQ(device_alloc(size_t{1} << 51, &address), Status::out_of_memory);
  EXPECT_EQ(device_alloc(SIZE_MAX, &address), Status::out_of_memory);
  EXPECT_EQ(address, 0u);
  EXPECT_EQ(device_alloc(1, nullptr), Status::invalid_value);
}

TEST(Memory, UncappedRunsGoBeyondTheCard) {
  const uint64_t a = alloc(size_t{200} << 30);
  const MemoryInfo info = memory_info();
  EXPECT_GT(info.allocated_bytes, info.total_bytes);
  EXPECT_EQ(info.free_bytes, 0u);
  EXPECT_EQ(device_free(a), Status::ok);
  EXPECT_GT(memory_info().free_bytes, 0u);
}

TEST(Memory, PhysicalMemoryIsCountedUntilItIsUnmappedAndReleased) {
  const uint64_t before = memory_info().allocated_bytes;
  uint64_t range = 0, handle = 0, other = 0;
  ASSERT_EQ(address_reserve(64 * kMiB, 0, &range), Status::ok);
  EXPECT_EQ(address_reserve(kMiB, 0, &other), Status::invalid_value) << "no multiple of 2 MiB";
  ASSERT_EQ(physical_create(0, 4 * kMiB, &handle), Status::ok);
  EXPECT_EQ(memory_info().allocated_bytes - before, 4 * kMiB);
  Range found;
  EXPECT_FALSE(find_device_range(range, &found)) << "reserved is not mapped";
  ASSERT_EQ(physical_map(range + 8 * kMiB, 4 * kMiB, handle), Status::ok);
  EXPECT_EQ(physical_map(range + 10 * kMiB, 4 * kMiB, handle), Status::invalid_value) << "overlaps";
  EXPECT_EQ(physical_map(range + 62 * kMiB, 4 * kMiB, handle), Status::invalid_value) << "beyond the reservation";
  EXPECT_TRUE(find_device_range(range + 11 * kMiB, &found));
  EXPECT_EQ(physical_release(handle), Status::ok);
  EXPECT_EQ(physical_release(handle), Status::invalid_value);
  EXPECT_EQ(memory_info().allocated_bytes - before, 4 * kMiB) << "still mapped";
  EXPECT_EQ(address_release(range, 64 * kMiB), Status::invalid_value) << "still mapped";
  EXPECT_EQ(physical_unmap(range + 8 * kMiB, 2 * kMiB), Status::invalid_value) << "part of a mapping";
  EXPECT_EQ(physical_unmap(range + 8 * kMiB, 4 * kMiB), Status::ok);
  EXPECT_EQ(memory_info().allocated_bytes, before);
  EXPECT_EQ(address_release(range, 64 * kMiB), Status::ok);
  EXPECT_EQ(address_release(range, 64 * kMiB), Status::invalid_value);
}

TEST(Memory, MemoryOfAnotherProcessIsMappedAndNotCounted) {
  const uint64_t before = memory_info().allocated_bytes;
  uint64_t range = 0, handle = 0;
  ASSERT_EQ(address_reserve(4 * kMiB, 0, &range), Status::ok);
  ASSERT_EQ(physical_import(0, 4 * kMiB, &handle), Status::ok);
  EXPECT_EQ(physical_size_of(handle), 4 * kMiB);
  ASSERT_EQ(physical_map(range, 4 * kMiB, handle), Status::ok);
  Range found;
  EXPECT_TRUE(find_device_range(range, &found));
  EXPECT_TRUE(is_of_another_process(range + kMiB));
  EXPECT_FALSE(is_of_another_process(range + 4 * kMiB));
  EXPECT_EQ(memory_info().allocated_bytes, before);
  EXPECT_EQ(physical_unmap(range, 4 * kMiB), Status::ok);
  EXPECT_FALSE(is_of_another_process(range + kMiB));
  EXPECT_EQ(physical_release(handle), Status::ok);
  EXPECT_EQ(memory_info().allocated_bytes, before);
  EXPECT_EQ(address_release(range, 4 * kMiB), Status::ok);
}

TEST(Memory, ReservationsAreReusedAndAligned) {
  uint64_t first = 0, again = 0, aligned = 0;
  ASSERT_EQ(address_reserve(size_t{90} << 30, 0, &first), Status::ok);
  ASSERT_EQ(address_release(first, size_t{90} << 30), Status::ok);
  ASSERT_EQ(address_reserve(size_t{90} << 30, 0, &again), Status::ok);
  EXPECT_EQ(first, again) << "a program that empties its cache at every step must not run out of addresses";
  ASSERT_EQ(address_release(again, size_t{90} << 30), Status::ok);
  ASSERT_EQ(address_reserve(4 * kMiB, 1 << 30, &aligned), Status::ok);
  EXPECT_EQ(aligned % (1 << 30), 0u);
  EXPECT_EQ(address_release(aligned, 4 * kMiB), Status::ok);
}

TEST(Memory, LibrariesTakeAndGiveBack) {
  const uint64_t before = memory_info().allocated_bytes;
  EXPECT_EQ(library_memory("nccl", "buffers \"a\"", 10 * static_cast<int64_t>(kMiB)), Status::ok);
  EXPECT_EQ(memory_info().allocated_bytes - before, 10 * kMiB);
  EXPECT_EQ(library_memory("nccl", "buffers \"a\"", -10 * static_cast<int64_t>(kMiB)), Status::ok);
  EXPECT_EQ(memory_info().allocated_bytes, before);
  EXPECT_EQ(library_memory("nccl", "absurd", INT64_MIN), Status::ok) << "gives back no more than there is";
}

// A process reads the profile once, so these tests run in their own process.
void in_process_with_profile(const std::string& profile_text, const std::function<bool()>& check) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const std::string path = testing::TempDir() + "gpucast_profile_" + std::to_string(getpid());
        FILE* file = std::fopen(path.c_str(), "w");
        std::fputs(profile_text.c_str(), file);
        std::fclose(file);
        setenv("GPUCAST_VGPU_PROFILE", path.c_str(), 1);
        const bool good = check();
        std::remove(path.c_str());
        _exit(good ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(MemoryDeathTest, CapacityIsEnforcedToTheByte) {
  in_process_with_profile("total_memory_bytes = 1000000000\ncontext_bytes = 100000000\nenforce_capacity = 1\n", [] {
    constexpr uint64_t kCapacity = 900'000'000, kFull = kCapacity / (2 * kMiB) * (2 * kMiB);
    uint64_t a = 0, b = 0, handle = 0;
    if (memory_info().free_bytes != kCapacity) return false;
    if (device_alloc(kFull + 1, &a) != Status::out_of_memory || a != 0) return false;
    if (device_alloc(kFull, &a) != Status::ok || memory_info().free_bytes != kCapacity - kFull) return false;
    if (device_alloc(1, &b) != Status::out_of_memory) return false;
    if (physical_create(0, 2 * kMiB, &handle) != Status::out_of_memory) return false;
    if (library_memory("nccl", "buffers", 2 * kMiB) != Status::out_of_memory) return false;
    if (pool_alloc(pool_default(0), 1, &b) != Status::out_of_memory) return false;
    if (device_free(a) != Status::ok || memory_info().free_bytes != kCapacity) return false;
    return device_alloc(1, &b) == Status::ok && memory_info().free_bytes == kCapacity - 2 * kMiB && memory_info().peak_bytes == kFull;
  });
}

TEST(Memory, PoolsKeepUntilTrimmed) {
  const uint64_t before = memory_info().allocated_bytes;
  const uint64_t pool = pool_create(0);
  uint64_t a = 0, b = 0;
  ASSERT_EQ(pool_alloc(pool, 10 * kMiB, &a), Status::ok);
  ASSERT_EQ(pool_alloc(pool, 10 * kMiB, &b), Status::ok);
  PoolUse use;
  ASSERT_EQ(pool_use(pool, &use), Status::ok);
  EXPECT_EQ(use.used_bytes, 20 * kMiB);
  EXPECT_EQ(use.reserved_bytes, 32 * kMiB);
  EXPECT_EQ(memory_info().allocated_bytes - before, 32 * kMiB);
  ASSERT_EQ(pool_set_threshold(pool, UINT64_MAX), Status::ok);
  EXPECT_EQ(pool_free(a), Status::ok);
  EXPECT_EQ(pool_free(a), Status::invalid_value);
  EXPECT_EQ(pool_free(b), Status::ok);
  pools_synchronize();
  EXPECT_EQ(memory_info().allocated_bytes - before, 32 * kMiB) << "below the threshold";
  ASSERT_EQ(pool_trim(pool, 0), Status::ok);
  EXPECT_EQ(memory_info().allocated_bytes, before);
  ASSERT_EQ(pool_use(pool, &use), Status::ok);
  EXPECT_EQ(use.peak_used_bytes, 20 * kMiB);
  EXPECT_EQ(use.used_bytes, 0u);
  EXPECT_EQ(pool_destroy(pool), Status::ok);
  EXPECT_EQ(pool_use(pool, &use), Status::invalid_value);
}

TEST(Memory, HostMemoryIsZeroedAndFound) {
  char* p = static_cast<char*>(host_alloc(10000));
  ASSERT_NE(p, nullptr);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(p[i], 0);
  p[9999] = 1;
  Range range;
  EXPECT_TRUE(find_host_range(p + 9999, &range));
  EXPECT_EQ(range.address, reinterpret_cast<uint64_t>(p));
  EXPECT_FALSE(find_host_range(p + 10000, &range));
  EXPECT_EQ(host_free(p + 1), Status::invalid_value);
  EXPECT_EQ(host_free(p), Status::ok);
  static char own[100];
  EXPECT_EQ(host_register(own, sizeof own), Status::ok);
  EXPECT_EQ(host_register(own, sizeof own), Status::invalid_value);
  EXPECT_TRUE(find_host_range(own + 50, &range));
  EXPECT_EQ(host_unregister(own), Status::ok);
  EXPECT_EQ(host_unregister(own), Status::invalid_value);
}

TEST(Memory, ThreadsMayAllocateTogether) {
  const uint64_t before = memory_info().allocated_bytes;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        uint64_t a = 0, b = 0;
        device_alloc(static_cast<size_t>(t + 1) * 3 * kMiB, &a);
        device_alloc(700, &b);
        const int value = i;
        int back = 0;
        copy(reinterpret_cast<void*>(b), &value, sizeof value, 1, 0);
        copy(&back, reinterpret_cast<void*>(b), sizeof back, 2, 0);
        device_free(b);
        device_free(a);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(memory_info().allocated_bytes - before, 2 * kMiB) << "one step for small allocations may stay";
}

}  // namespace
}  // namespace gpucast::vgpu

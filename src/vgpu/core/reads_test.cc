#include <gtest/gtest.h>

#include <cstdint>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {
namespace {

int g_counted = 0;

class Reads : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(device_alloc(1 << 20, &address_), Status::ok);
    device_written();
    g_counted = 0;
    gpucast_vgpu_on_unknown_count([] { ++g_counted; });
  }
  void TearDown() override {
    gpucast_vgpu_on_unknown_count(nullptr);
    gpucast_vgpu_on_unknown_condition(nullptr);
    gpucast_vgpu_answer_reads(nullptr, 0);
    device_free(address_);
  }
  template <typename T>
  T read() {
    T value = 77;
    copy(&value, reinterpret_cast<void*>(address_), sizeof value, 2, 0);
    return value;
  }
  static void launch(const char* name) {
    const unsigned grid[3] = {1, 1, 1};
    kernel_written(name, grid, nullptr);
  }
  uint64_t address_ = 0;
};

TEST_F(Reads, UnknownValuesAreZerosOrWhatIsSaid) {
  EXPECT_EQ(read<int32_t>(), 0);
  EXPECT_EQ(gpucast_vgpu_read_known(), 0);
  const int64_t answers[] = {5, -1};
  gpucast_vgpu_answer_reads(answers, 2);
  EXPECT_EQ(read<int32_t>(), 5);
  EXPECT_EQ(read<int64_t>(), -1);
  EXPECT_EQ(read<uint8_t>(), 255);  // the last value stays
  gpucast_vgpu_answer_reads(nullptr, 0);
  EXPECT_EQ(read<int64_t>(), 0);
}

TEST_F(Reads, KnownValuesStay) {
  const int64_t value = 42, answer = 5;
  copy(reinterpret_cast<void*>(address_), &value, sizeof value, 1, 0);
  gpucast_vgpu_answer_reads(&answer, 1);
  EXPECT_EQ(read<int64_t>(), 42);
  EXPECT_EQ(gpucast_vgpu_read_known(), 1);
  EXPECT_EQ(g_counted, 0);
}

TEST_F(Reads, CountsAreNoticed) {
  launch("_ZN2at6native13reduce_kernelILi512ELi1EEE");
  read<int32_t>();
  EXPECT_EQ(g_counted, 0);
  launch("_ZN3cub17CUB_200200_800_NS18DeviceReduceKernelIEE");
  read<int32_t>();
  EXPECT_EQ(g_counted, 1);
  launch("_ZN2at6native13reduce_kernelILi512ELi1EEE");
  read<int64_t>();  // a size
  EXPECT_EQ(g_counted, 2);
  const int64_t answer = 3;
  gpucast_vgpu_answer_reads(&answer, 1);
  read<int64_t>();
  EXPECT_EQ(g_counted, 2);
}

TEST_F(Reads, MasksAreCountedAgain) {
  const char* const kName = "_ZN3cub28DeviceReduceSingleTileKernelINS_22TransformInputIteratorIbN2at6native9NonZeroOpIbEEPKblEEEE";
  gpucast_vgpu_note_count(address_, 12);
  const unsigned grid[3] = {1, 1, 1};
  uint64_t iterator[2] = {address_, 0};
  const void* const arguments[] = {iterator};
  kernel_written(kName, grid, arguments);
  EXPECT_EQ(read<int32_t>(), 12);
  EXPECT_EQ(read<int32_t>(), 0);
  kernel_written(kName, grid, arguments);
  const int64_t answer = 7;
  gpucast_vgpu_answer_reads(&answer, 1);
  EXPECT_EQ(read<int32_t>(), 7);
  gpucast_vgpu_answer_reads(nullptr, 0);
  EXPECT_EQ(read<uint8_t>(), 0);  // the count was for the read before
  iterator[0] += 8;               // another mask
  kernel_written(kName, grid, arguments);
  EXPECT_EQ(read<int32_t>(), 0);
}

TEST_F(Reads, ConditionsAreAsked) {
  gpucast_vgpu_on_unknown_condition([] { return 1; });
  EXPECT_EQ(read<bool>(), true);
  EXPECT_EQ(read<int32_t>(), 0);  // a number
  const int64_t answer = 0;
  gpucast_vgpu_answer_reads(&answer, 1);
  EXPECT_EQ(read<bool>(), false);
  gpucast_vgpu_answer_reads(nullptr, 0);
  const bool value = false;
  copy(reinterpret_cast<void*>(address_), &value, sizeof value, 1, 0);
  EXPECT_EQ(read<bool>(), false);  // known
}

TEST_F(Reads, UploadsAreCounted) {
  const uint64_t before = gpucast_vgpu_uploads();
  const int64_t values[2] = {1, 2};
  copy(reinterpret_cast<void*>(address_), values, sizeof values[0], 1, 0);  // a number
  read<int64_t>();
  EXPECT_EQ(gpucast_vgpu_uploads(), before);
  copy(reinterpret_cast<void*>(address_), values, sizeof values, 1, 0);
  EXPECT_EQ(gpucast_vgpu_uploads(), before + 1);
}

TEST_F(Reads, LongReadsAreZeros) {
  const int64_t answer = 3;
  gpucast_vgpu_answer_reads(&answer, 1);
  int64_t values[2] = {7, 7};
  copy(values, reinterpret_cast<void*>(address_), sizeof values, 2, 0);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 0);
}

}  // namespace
}  // namespace gpucast::vgpu

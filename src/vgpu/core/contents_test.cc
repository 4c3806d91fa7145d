#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {
namespace {

class Contents : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(device_alloc(4 << 20, &address_), Status::ok);
    device_written();
  }
  void TearDown() override { EXPECT_EQ(device_free(address_), Status::ok); }

  void* at(size_t offset) const { return reinterpret_cast<void*>(address_ + offset); }
  std::vector<int> read(size_t offset, size_t count) const {
    std::vector<int> out(count, -1);
    copy(out.data(), at(offset), count * sizeof(int), 2, 0);
    return out;
  }

  uint64_t address_ = 0;
};

TEST_F(Contents, ReadsAsZeros) { EXPECT_EQ(read(0, 3), (std::vector<int>{0, 0, 0})); }

TEST_F(Contents, SmallCopiesSurviveUntilAKernel) {
  const std::array<int, 3> values = {1, 2, 3};
  copy(at(100), values.data(), sizeof values, 1, 0);
  EXPECT_EQ(read(100, 3), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(read(96, 4), (std::vector<int>{0, 1, 2, 3})) << "what is not known is zero";
  copy(at(1000), at(104), 8, 3, 0);
  EXPECT_EQ(read(1000, 3), (std::vector<int>{2, 3, 0}));
  device_written();
  EXPECT_EQ(read(100, 3), (std::vector<int>{0, 0, 0}));
}

TEST_F(Contents, LaterCopiesOverwritePartsOfEarlierOnes) {
  const std::array<int, 4> values = {1, 2, 3, 4};
  const int nine = 9;
  copy(at(0), values.data(), sizeof values, 1, 0);
  copy(at(4), &nine, 4, 1, 0);
  EXPECT_EQ(read(0, 4), (std::vector<int>{1, 9, 3, 4}));
  fill(address_ + 8, 0, 4, 0);
  EXPECT_EQ(read(0, 4), (std::vector<int>{1, 9, 0, 4}));
  copy(at(0), at(2000), 8, 3, 0);  // from memory with unknown contents
  EXPECT_EQ(read(0, 4), (std::vector<int>{0, 0, 0, 4}));
}

TEST_F(Contents, LargeCopiesAreForgotten) {
  const std::vector<int> ones(20000, 1);
  const int nine = 9;
  copy(at(0), &nine, 4, 1, 0);
  copy(at(0), ones.data(), ones.size() * sizeof(int), 1, 0);
  EXPECT_EQ(read(0, 1), std::vector<int>{0});
  copy(at(0), ones.data(), 64 << 10, 1, 0);
  EXPECT_EQ(read(0, 1), std::vector<int>{1}) << "64 KiB is still small";
}

TEST_F(Contents, FillsKeepTheirPattern) {
  fill(address_, 0x01, 8, 0);
  EXPECT_EQ(read(0, 3), (std::vector<int>{0x01010101, 0x01010101, 0}));
  fill_pattern(address_, 7, 4, 2, 0);
  EXPECT_EQ(read(0, 3), (std::vector<int>{7, 7, 0}));
}

TEST_F(Contents, TheAddressesSayWhatACopyIs) {
  int from = 5, to = 0;
  copy(&to, &from, sizeof to, 3, 0);  // the program claims device to device
  EXPECT_EQ(to, 5);
  copy(at(0), &from, sizeof from, 2, 0);
  EXPECT_EQ(read(0, 1), std::vector<int>{5});
}

TEST_F(Contents, CollectivesReadAndWrite) {
  const int three = 3, twenty_four = 24;
  int value = 0;
  EXPECT_EQ(read_small(address_, &value, sizeof value), 0u);
  copy(at(0), &three, sizeof three, 1, 0);
  EXPECT_EQ(read_small(address_, &value, sizeof value), sizeof value);
  EXPECT_EQ(value, 3);
  write_small(address_, &twenty_four, sizeof twenty_four);
  EXPECT_EQ(read(0, 1), std::vector<int>{24});
  EXPECT_EQ(read_small(address_, std::array<int, 2>().data(), 8), 4u) << "half of it is unknown";
}

TEST_F(Contents, FreedMemoryIsForgotten) {
  uint64_t first = 0, second = 0;
  const int nine = 9;
  ASSERT_EQ(device_alloc(4096, &first), Status::ok);
  copy(reinterpret_cast<void*>(first), &nine, sizeof nine, 1, 0);
  ASSERT_EQ(device_free(first), Status::ok);
  ASSERT_EQ(device_alloc(4096, &second), Status::ok);
  ASSERT_EQ(first, second);
  int back = -1;
  copy(&back, reinterpret_cast<void*>(second), sizeof back, 2, 0);
  EXPECT_EQ(back, 0);
  device_free(second);
}

}  // namespace
}  // namespace gpucast::vgpu

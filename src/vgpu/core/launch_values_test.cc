#include "src/vgpu/core/launch_values.h"

#include <gtest/gtest.h>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {
namespace {

class LaunchValuesOfMemory : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(device_alloc(1 << 20, &start_), Status::ok);
    forget_values(start_, 1 << 20);  // other tests had the same addresses
  }
  void TearDown() override { device_free(start_); }
  // What is known where one pointer leads.
  std::string at(uint64_t pointer) const {
    const std::vector<LaunchValuesRef> found = values_at({{pointer}});
    return found.empty() ? "" : found[0]->bytes;
  }
  uint64_t start_ = 0;
};

TEST_F(LaunchValuesOfMemory, ACopyFromTheHostIsKnownUntilAnotherReplacesIt) {
  copy(reinterpret_cast<void*>(start_), "indices", 7, 1, 0);
  device_written();  // a kernel ran
  EXPECT_EQ(at(start_), "indices");
  EXPECT_EQ(at(start_ + 6), "indices");
  EXPECT_EQ(at(start_ + 7), "");
  const uint64_t before = values_at({{start_}})[0]->id;
  copy(reinterpret_cast<void*>(start_), "indices", 7, 1, 0);
  EXPECT_EQ(values_at({{start_}})[0]->id, before);  // nothing changed
  copy(reinterpret_cast<void*>(start_ + 4), "other", 5, 1, 0);
  EXPECT_EQ(at(start_), "indiother");  // what was not replaced stays
  forget_values(start_ + 2, 3);
  EXPECT_EQ(at(start_), "in");
  EXPECT_EQ(at(start_ + 5), "ther");
}

TEST_F(LaunchValuesOfMemory, ACopyOnTheCardTakesThemAlongAndAFillEndsThem) {
  copy(reinterpret_cast<void*>(start_), "indices", 7, 1, 0);
  copy(reinterpret_cast<void*>(start_ + 512), reinterpret_cast<void*>(start_), 7, 3, 0);
  EXPECT_EQ(at(start_ + 512), "indices");
  fill(start_, 0, 64, 0);
  EXPECT_EQ(at(start_), "");
  copy(reinterpret_cast<void*>(start_ + 512), reinterpret_cast<void*>(start_ + 4096), 7, 3, 0);
  EXPECT_EQ(at(start_ + 512), "");
}

TEST_F(LaunchValuesOfMemory, TwoPointersToOneRangeFindItOnce) {
  gpucast_vgpu_note_values(start_, "0123456789", 10);
  EXPECT_EQ(values_at({{start_, start_ + 4, start_ + 64}}).size(), 1U);
  char read[4] = {};
  EXPECT_EQ(gpucast_vgpu_known_values(start_ + 8, read, sizeof read), 2U);
  EXPECT_EQ(std::string(read), "89");
}

}  // namespace
}  // namespace gpucast::vgpu

#include "src/vgpu/core/devices.h"

#include <gtest/gtest.h>

namespace gpucast::vgpu {
namespace {

using Devices = std::vector<int>;

TEST(Devices, VisibleAreThoseThatAreNamed) {
  EXPECT_EQ(parse_visible_devices("0,1", 2), (Devices{0, 1}));
  EXPECT_EQ(parse_visible_devices(" 3 , 1", 4), (Devices{3, 1}));
  EXPECT_EQ(parse_visible_devices("5", 1), Devices{5});  // the machine has more cards than assumed
}

TEST(Devices, TheListEndsAtWhatNamesNothing) {
  EXPECT_EQ(parse_visible_devices("", 2), Devices{});
  EXPECT_EQ(parse_visible_devices("-1", 2), Devices{});
  EXPECT_EQ(parse_visible_devices("1,-1,0", 2), Devices{1});
  EXPECT_EQ(parse_visible_devices("1,x,0", 2), Devices{1});
  EXPECT_EQ(parse_visible_devices("1,,0", 2), Devices{1});
  EXPECT_EQ(parse_visible_devices("1 0", 2), Devices{});
  EXPECT_EQ(parse_visible_devices("0,0", 2), Devices{0});
  EXPECT_EQ(parse_visible_devices("99999999999999999999", 2), Devices{});
  EXPECT_EQ(parse_visible_devices("64", 2), Devices{});  // more cards than a machine has
}

TEST(Devices, ByIdentityAnyCardWill) { EXPECT_EQ(parse_visible_devices("GPU-5a1b,GPU-77", 4), (Devices{0, 1})); }

TEST(Devices, AThreadHasItsOwn) {
  // The tests' machine has one card.
  EXPECT_EQ(device_count(), 1);
  EXPECT_EQ(current_device(), 0);
  EXPECT_FALSE(set_current_device(1));
  EXPECT_FALSE(set_current_device(-1));
  EXPECT_EQ(current_device(), 0);
  EXPECT_FALSE(can_access_peer(0, 0));
  EXPECT_EQ(change_peer_access(1, true), 101);
  uint64_t address = 1;
  EXPECT_EQ(device_alloc_on(1, 512, &address), Status::invalid_value);
  EXPECT_EQ(physical_create(1, 2 << 20, &address), Status::invalid_value);
  EXPECT_EQ(memory_info(1).allocated_bytes, 0u);
}

}  // namespace
}  // namespace gpucast::vgpu

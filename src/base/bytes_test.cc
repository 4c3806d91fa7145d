#include "src/base/bytes.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

TEST(Bytes, PeopleReadMibAndGib) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(3584), "3.5 KiB");
  EXPECT_EQ(format_bytes(8519680), "8.1 MiB");
  EXPECT_EQ(format_bytes(int64_t{3324} << 20), "3.25 GiB");
  EXPECT_EQ(format_bytes(-(int64_t{2} << 30)), "-2.00 GiB");
  EXPECT_EQ(format_mib(3131572224), "2986.50 MiB");
}

}  // namespace
}  // namespace gpucast

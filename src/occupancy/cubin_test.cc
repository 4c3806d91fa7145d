#include "src/occupancy/cubin.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/occupancy/test_fatbin.h"

namespace gpucast {
namespace {

TEST(Cubin, RegistersOfTheTextSectionUnlessANoteSaysMore) {
  const auto old = kernels_of_cubin(cubin(40, {}).data());
  ASSERT_TRUE(old.contains("k"));
  EXPECT_EQ(old.at("k").registers, 40);
  EXPECT_EQ(old.at("k").static_shared_bytes, 4096);
  // Symbol 1 has 168 registers and a frame of 16 bytes; another record names a symbol that does not exist.
  const auto fresh = kernels_of_cubin(cubin(0, {0x00082f04, 1, 168, 0x00081104, 1, 16, 0x00082f04, 9, 7}).data());
  EXPECT_EQ(fresh.at("k").registers, 168);
  EXPECT_EQ(fresh.at("k").local_bytes, 16);
}

// Notes of parameters as ptxas writes them, last first: a pointer, a number of 4 bytes, a pointer, and a parameter above the counted 64.
TEST(Cubin, SaysWhichParametersMayBePointers) {
  const std::vector<uint32_t> notes{
      0x000c1704,   0,          70 | 560u << 16, 0x0021f400, 0x000c1704, 0,         2 | 16u << 16, 0x0021f400, 0x000c1704, 0,
      1 | 8u << 16, 0x0011f000, 0x000c1704,      0,          0,          0x0021f400};
  EXPECT_EQ(kernels_of_cubin(cubin(40, notes, true).data()).at("k").wide_parameters, 0b101u);
  EXPECT_EQ(kernels_of_cubin(cubin(40, notes, false).data()).at("k").wide_parameters, 0u) << "notes of all kernels name no parameter";
}

TEST(Cubin, OtherBytesHaveNoKernels) {
  EXPECT_TRUE(kernels_of_cubin(nullptr).empty());
  EXPECT_TRUE(kernels_of_cubin("PTX").empty());
  std::string cut = cubin(40, {0x00ff2f04, 1, 168});  // a note longer than its section
  EXPECT_EQ(kernels_of_cubin(cut.data()).at("k").registers, 40);
}

// Each beginning of a file in memory of exactly that size, and the file with each byte changed: no read goes outside.
TEST(Cubin, ReadsNothingBeyondAFile) {
  const std::string whole = cubin(40, {0x00082f04, 1, 168, 0x00081104, 1, 16});
  EXPECT_EQ(kernels_of_cubin(whole.data(), whole.size()).at("k").registers, 168);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    kernels_of_cubin(cut.data(), size);
    for (const int change : {1, 127, 255}) {
      std::vector<char> changed(whole.begin(), whole.end());
      changed[size] = static_cast<char>(changed[size] ^ change);
      kernels_of_cubin(changed.data(), changed.size());
    }
  }
}

}  // namespace
}  // namespace gpucast

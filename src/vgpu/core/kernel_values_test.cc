#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {
namespace {

constexpr unsigned kGrid[3] = {1, 2, 1};
const char* const kGreater =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_50_GLOBAL__N__14CompareFunctorIlEESt5arrayIPcLm3EEEEviT0_T1_";
const char* const kAdd = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIlEESt5arrayIPcLm3EEEEviT0_T1_";
const char* const kFill = "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIiEESt5arrayIPcLm1EELb0EEEviT0_T1_";
const char* const kCat = "_ZN2at6native40_GLOBAL__N__26CatArrayBatchedCopy_contigINS1_10OpaqueTypeILj8EEEjLi1ELi128ELi1EEEvPT_";

class KernelValues : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(device_alloc(4 << 20, &address_), Status::ok);
    const std::array<int64_t, 2> a = {5, 9}, b = {7, 3};
    write_small(address_, a.data(), sizeof a);
    write_small(address_ + 64, b.data(), sizeof b);
  }
  void TearDown() override { EXPECT_EQ(device_free(address_), Status::ok); }
  template <typename T>
  std::array<T, 2> read(size_t offset) const {
    std::array<T, 2> out{};
    read_small(address_ + offset, out.data(), sizeof out);
    return out;
  }
  uint64_t address_ = 0;
};

TEST_F(KernelValues, ComparesAddsAndFills) {
  const int count = 2, greater = 1, seven = 7;
  const int64_t alpha = 2;
  const std::array<uint64_t, 3> flags = {address_ + 256, address_, address_ + 64}, sums = {address_ + 512, address_, address_ + 64};
  const std::array<uint64_t, 1> filled = {address_ + 1024};
  kernel_written(kGreater, kGrid, std::array<const void*, 3>{&count, &greater, &flags}.data());
  kernel_written(kAdd, kGrid, std::array<const void*, 3>{&count, &alpha, &sums}.data());
  kernel_written(kFill, kGrid, std::array<const void*, 3>{&count, &seven, &filled}.data());
  EXPECT_EQ(read<char>(256), (std::array<char, 2>{0, 1}));
  EXPECT_EQ(read<int64_t>(512), (std::array<int64_t, 2>{19, 15}));
  EXPECT_EQ(read<int>(1024), (std::array<int, 2>{7, 7}));
  EXPECT_EQ(read<int64_t>(0), (std::array<int64_t, 2>{5, 9})) << "inputs stay";
}

TEST_F(KernelValues, OfUnknownInputsNothingIsKnown) {
  const int count = 2;
  const int64_t alpha = 1;
  const std::array<uint64_t, 3> sums = {address_, address_ + 64, address_ + 2048};
  kernel_written(kAdd, kGrid, std::array<const void*, 3>{&count, &alpha, &sums}.data());
  std::array<int64_t, 2> out{};
  EXPECT_EQ(read_small(address_, out.data(), sizeof out), 0u);
}

TEST_F(KernelValues, LaysBehindOneAnother) {
  struct {
    uint64_t inputs[128];
    uint32_t offsets[128], sizes[128];
  } metadata = {};
  metadata.inputs[0] = address_ + 64;
  metadata.inputs[1] = address_;
  metadata.sizes[0] = metadata.sizes[1] = metadata.offsets[1] = 1;
  const uint64_t out = address_ + 512;
  kernel_written(kCat, kGrid, std::array<const void*, 2>{&out, &metadata}.data());
  EXPECT_EQ(read<int64_t>(512), (std::array<int64_t, 2>{7, 5}));
}

TEST_F(KernelValues, AnyOtherKernelMayHaveWrittenAnywhere) {
  kernel_written("_Z6kernelPf", kGrid, nullptr);
  EXPECT_EQ(read<int64_t>(0), (std::array<int64_t, 2>{0, 0}));
}

}  // namespace
}  // namespace gpucast::vgpu

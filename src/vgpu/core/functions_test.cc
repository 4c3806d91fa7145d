#include "src/vgpu/core/functions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/occupancy/test_fatbin.h"
#include "src/vgpu/core/device_attributes.h"
#include "src/vgpu/core/profile.h"

namespace gpucast::vgpu {
namespace {

constexpr int kPtx = 1, kMachineCode = 2;

// A fat binary with these (kind, architecture) entries, each with a payload of 24 bytes.
std::string fatbin(const std::vector<std::pair<int, uint32_t>>& entries) {
  std::string body;
  for (const auto& [kind, arch] : entries) {
    char header[64] = {};
    const auto put = [&header](size_t at, auto value) { std::memcpy(header + at, &value, sizeof value); };
    put(0, static_cast<uint16_t>(kind));
    put(4, uint32_t{sizeof header});
    put(8, uint64_t{24});
    put(28, arch);
    body.append(header, sizeof header).append(24, 'x');
  }
  char head[16] = {};
  const uint32_t magic = 0xba55ed50;
  const uint16_t version = 1, size = 16;
  const uint64_t length = body.size();
  std::memcpy(head, &magic, 4);
  std::memcpy(head + 4, &version, 2);
  std::memcpy(head + 6, &size, 2);
  std::memcpy(head + 8, &length, 8);
  return std::string(head, 16) + body;
}

TEST(Functions, ChoosesCodeOfTheSameMajor) {
  const std::string wheel = fatbin({{kMachineCode, 50}, {kMachineCode, 75}, {kMachineCode, 80}, {kMachineCode, 86}, {kMachineCode, 90}});
  EXPECT_EQ(choose_fatbin(wheel.data(), 8, 9).binary_arch, 86) << "an RTX 4060 runs sm_86";
  EXPECT_EQ(choose_fatbin(wheel.data(), 8, 0).binary_arch, 80);
  EXPECT_EQ(choose_fatbin(wheel.data(), 9, 0).binary_arch, 90);
  EXPECT_EQ(choose_fatbin(wheel.data(), 7, 0).binary_arch, 0) << "sm_75 does not run on a V100";
  EXPECT_TRUE(choose_fatbin(wheel.data(), 7, 0).has_any);
}

TEST(Functions, FallsBackToTheNewestPtxThatTheCardCanCompile) {
  const std::string mixed = fatbin({{kPtx, 70}, {kPtx, 80}, {kPtx, 100}, {kMachineCode, 75}});
  EXPECT_EQ(choose_fatbin(mixed.data(), 9, 0).ptx_arch, 80);
  EXPECT_EQ(choose_fatbin(mixed.data(), 9, 0).binary_arch, 90);
  EXPECT_EQ(choose_fatbin(mixed.data(), 7, 5).ptx_arch, 75) << "machine code first";
}

TEST(Functions, ResourcesComeFromTheMachineCodeOfALibrary) {
  using Packing = FatbinEntry::Packing;
  const int arch = profile().compute_major * 10 + profile().compute_minor;
  const std::string data = gpucast::fatbin({{arch, FatbinEntry::Kind::cubin, Packing::zstd, 100}});
  struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* data = nullptr;
  } wrapper;
  wrapper.data = data.data();
  void** const fatbin = register_fatbin(&wrapper);
  const char kernel = 0, other = 0;
  register_function(fatbin, &kernel, "k", 0);
  register_function(fatbin, &other, "not there", 0);
  EXPECT_EQ(kernel_resources(&kernel).registers, 100);
  EXPECT_EQ(kernel_resources(&kernel).static_shared_bytes, 4096);
  EXPECT_EQ(kernel_resources(&other).registers, 0) << "not known";
  EXPECT_EQ(kernel_resources(&wrapper).registers, 0) << "no kernel";
  // 100 registers make 3328 for a warp. 19 warps fit, so 4 blocks of 4 warps.
  EXPECT_EQ(occupancy_blocks(kernel_resources(&kernel), 128, 0), 4);
  EXPECT_EQ(occupancy_blocks(kernel_resources(&other), 128, 0), 16) << "as with 32 registers";
  unregister_fatbin(fatbin);
  EXPECT_EQ(kernel_resources(&kernel).registers, 0);
}

TEST(Functions, OtherDataIsNoFatBinary) {
  const std::string text(64, 'a');
  EXPECT_FALSE(choose_fatbin(text.data(), 8, 0).has_any);
  EXPECT_FALSE(choose_fatbin(nullptr, 8, 0).has_any);
}

TEST(Functions, RegisteredUntilUnregistered) {
  static const std::string for_others = fatbin({{kMachineCode, 30}});
  struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* data = for_others.data();
  } const wrapper;
  char kernel = 0, variable = 0;
  void** handle = register_fatbin(&wrapper);
  register_function(handle, &kernel, "kernel_name", -1);
  register_variable(handle, &variable, "variable_name", 12);
  Function function;
  ASSERT_TRUE(find_function(&kernel, &function));
  EXPECT_STREQ(function.name, "kernel_name");
  EXPECT_FALSE(function.has_code);
  uint64_t address = 0, again = 0;
  size_t size = 0;
  ASSERT_TRUE(find_variable(&variable, &address, &size));
  ASSERT_TRUE(find_variable(&variable, &again, &size));
  EXPECT_EQ(address, again);
  EXPECT_EQ(size, 12u);
  Range range;
  EXPECT_TRUE(find_device_range(address, &range));
  unregister_fatbin(handle);
  EXPECT_FALSE(find_function(&kernel, &function));
  EXPECT_FALSE(find_variable(&variable, &address, &size));
  unregister_fatbin(handle);  // the second call does nothing
}

TEST(Functions, ModulesGiveTheSameHandleForAName) {
  const uint64_t module = module_load("PTX");
  const void *a = nullptr, *b = nullptr;
  ASSERT_TRUE(module_function(module, "triton_kernel", &a));
  ASSERT_TRUE(module_function(module, "triton_kernel", &b));
  EXPECT_EQ(a, b);
  Function function;
  ASSERT_TRUE(find_function(a, &function));
  EXPECT_STREQ(function.name, "triton_kernel");
  EXPECT_TRUE(function.has_code);
  EXPECT_TRUE(module_unload(module));
  EXPECT_FALSE(module_unload(module));
  EXPECT_FALSE(find_function(a, &function));
  EXPECT_FALSE(module_function(module, "triton_kernel", &a));
}

TEST(Profile, ReadsWhatItKnowsAndNamesTheRest) {
  std::string problems;
  const DeviceProfile p = parse_profile(
      "# a card\nname = A card = mine \r\n\ncompute_major=8\ntotal_memory_bytes = 12622168064\nl2_bytes = -1\nmultiprocessors = "
      "many\nof_the_future = 3\nno equals",
      &problems);
  EXPECT_STREQ(p.name, "A card = mine");
  EXPECT_EQ(p.total_memory_bytes, 12622168064u);
  EXPECT_EQ(p.capacity_bytes, p.total_memory_bytes - p.context_bytes);
  EXPECT_EQ(problems, "line 6: cannot use 'l2_bytes = -1'\nline 7: cannot use 'multiprocessors = many'\nline 9: cannot use 'no equals'\n");
}

TEST(Profile, CapacityIsNeverMoreThanTheContextLeaves) {
  std::string problems;
  EXPECT_EQ(parse_profile("total_memory_bytes = 1000\ncontext_bytes = 400\ncapacity_bytes = 900\n", &problems).capacity_bytes, 600u);
  EXPECT_EQ(parse_profile("total_memory_bytes = 1000\ncontext_bytes = 2000\n", &problems).capacity_bytes, 0u);
  EXPECT_EQ(parse_profile("total_memory_bytes = 1000\ncontext_bytes = 400\ncapacity_bytes = 500", &problems).capacity_bytes, 500u);
  EXPECT_STREQ(parse_profile("name = " + std::string(200, 'x'), &problems).name, default_profile().name);
  EXPECT_NE(problems, "");
}

}  // namespace
}  // namespace gpucast::vgpu

// Counts of random kernels against an interpreter that runs each thread alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "src/kernels/random_kernel.h"
#include "src/kernels/slow_interpreter.h"

namespace gpucast {
namespace {

std::string differences(const KernelCounts& counted, const slow::Counts& expected) {
  std::string out;
  const auto check = [&](const char* what, double a, double b) {
    if (a != b) out += std::string(what) + ": counted " + std::to_string(a) + ", expected " + std::to_string(b) + "\n";
  };
  check("integer", counted.integer, expected.integer);
  check("fp32", counted.fp32, expected.fp32);
  check("special", counted.special, expected.special);
  check("control", counted.control, expected.control);
  check("memory", counted.memory, expected.memory);
  check("flops", counted.flops, expected.flops);
  check("barriers", counted.barriers, expected.barriers);
  check("load sectors", counted.load_sectors, expected.load_sectors);
  check("store sectors", counted.store_sectors, expected.store_sectors);
  check("atomic sectors", counted.atomic_sectors, expected.atomic_sectors);
  check("bytes of copies", counted.async_load_bytes, expected.async_load_bytes);
  check("wavefronts", counted.shared_wavefronts, expected.wavefronts);
  check("bytes read", counted.unique_load_bytes, expected.unique_load_bytes);
  check("bytes written", counted.unique_store_bytes, expected.unique_store_bytes);
  check("bytes read by blocks", counted.block_load_bytes, expected.block_load_bytes);
  check("bytes written by blocks", counted.block_store_bytes, expected.block_store_bytes);
  check("sectors touched", counted.touched_bytes, expected.touched_bytes);
  check("sectors touched by blocks", counted.block_touched_bytes, expected.block_touched_bytes);
  if (!counted.limit.empty()) out += "limit: " + counted.limit + "\n";
  for (const std::string& name : counted.not_understood) out += "not understood: " + name + "\n";
  if (counted.assumed_values) out += "assumed values\n";
  return out;
}

std::string compared(const std::string& text, const KernelLaunch& launch, const KnownValue& known) {
  const slow::Counts expected = slow::count_every_thread(text, launch, known);
  return differences(count_kernel(*parse_ptx(text), "k", launch, known), expected);
}

TEST(BruteForce, RandomKernelsCountAsTheirThreadsDo) {
  const auto from_environment = [](const char* name, uint32_t otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? static_cast<uint32_t>(std::stoul(value)) : otherwise;
  };
  const uint32_t one = from_environment("GPUCAST_KERNEL_SEED", 0);  // shows the kernel
  const uint32_t begin = std::max(one, 1U), end = one > 0 ? one : from_environment("GPUCAST_KERNEL_SEEDS", 1000);
  int failures = 0;
  for (uint32_t seed = begin; seed <= end && failures < 5; ++seed) {
    const RandomKernel kernel = random_kernel(seed);
    const std::string wrong = compared(kernel.text, kernel.launch, values_of_seed(seed));
    EXPECT_EQ(wrong, "") << "seed " << seed << (one > 0 ? "\n" + kernel.text : "");
    failures += !wrong.empty();
  }
}

// Rounds of loops whose addresses move by less than a sector.
TEST(BruteForce, SeedsThatFoundAFault) {
  for (const uint32_t seed : {14009U, 25536U, 29105U}) {
    const RandomKernel kernel = random_kernel(seed);
    EXPECT_EQ(compared(kernel.text, kernel.launch, values_of_seed(seed)), "") << "seed " << seed;
  }
}

// What random kernels found.
std::string compared_body(const std::string& statements) {
  KernelLaunch launch;
  launch.block = {64, 1, 1};
  launch.grid = {2, 1, 1};
  launch.parameters = std::string("\0\0\0\0\x10\0\0\0", 8);
  return compared(
      ".visible .entry k(\n.param .u64 p)\n{\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %a<4>;\nld.param.u64 %a0, [p];\n"
      "mov.u32 %r0, %tid.x;\n" +
          statements + "ret;\n}\n",
      launch, {});
}

TEST(BruteForce, LanesThatLeaveDoNotKeepTheOthersApart) {
  const std::string head = "setp.lt.u32 %p0, %r0, 7;\nsetp.eq.u32 %p1, %r0, 3;\n@%p0 bra END;\n", tail = "END:\nbar.sync 0;\n";
  EXPECT_EQ(compared_body(head + "@%p1 ret;\nadd.s32 %r1, %r0, 1;\n" + tail), "");
  EXPECT_EQ(compared_body(head + "setp.eq.u32 %p1, %r0, 33;\n@!%p1 bra STAY;\nret;\nSTAY:\nadd.s32 %r1, %r0, 1;\n" + tail), "");
  EXPECT_EQ(compared_body(head + "@!%p1 bra STAY;\nret;\nSTAY:\nadd.s32 %r1, %r0, 1;\n" + tail + "ret;\nadd.s32 %r1, %r0, 2;\n"), "");
}

TEST(BruteForce, AnExtensionFrom32BitsOrMoreChangesNothing) {
  EXPECT_EQ(compared_body("szext.clamp.u32 %r1, %r0, 77;\nmul.wide.u32 %a1, %r1, 4;\nadd.s64 %a1, %a0, %a1;\nst.global.b32 [%a1], %r0;\n"),
            "");
}

TEST(BruteForce, AConversionKeepsTheSignOfANarrowType) {
  EXPECT_EQ(
      compared_body("add.s32 %r1, %r0, 100;\ncvt.s8.u32 %r1, %r1;\nsetp.lt.s32 %p0, %r1, 0;\n@%p0 bra END;\nadd.s32 %r2, %r0, 1;\nEND:\n"),
      "");
}

TEST(BruteForce, AnAtomicsLanesAllWrite) {
  EXPECT_EQ(compared_body("mul.wide.u32 %a1, %r0, 12;\nadd.s64 %a1, %a0, %a1;\nred.global.add.u32 [%a1], %r0;\n"), "");
}

TEST(BruteForce, TheCarryOfADroppedSumCounts) {
  EXPECT_EQ(compared_body("sub.cc.u32 %r1, %r0, 9;\nsubc.u32 %r2, %r0, 0;\nmul.wide.u32 %a1, %r2, 4;\nadd.s64 %a1, %a0, %a1;\n"
                          "ld.global.b32 %r3, [%a1];\n"),
            "");
}

}  // namespace
}  // namespace gpucast

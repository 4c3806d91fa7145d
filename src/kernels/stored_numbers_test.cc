// What launches leave in memory, against sums on paper.
#include "src/kernels/stored_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "gpucast/error.h"
#include "src/kernels/random_kernel.h"

namespace gpucast {
namespace {

constexpr uint64_t kIn = 0x10000000, kOut = 0x20000000;

// `in` and `out` are the two pointers: %a0, %a1; %r0 is the thread's number in the launch, %r1 in its block.
std::string kernel(const std::string& statements) {
  return ".shared .align 16 .b8 room[1024];\n"
         ".visible .entry k(\n.param .u64 in, .param .u64 out)\n{\n.reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %a<8>;\n.reg .b16 "
         "%h<4>;\n"
         ".reg .f32 %f<4>;\n"
         "ld.param.u64 %a0, [in];\nld.param.u64 %a1, [out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n"
         "mad.lo.s32 %r0, %r2, %r3, %r1;\nmul.wide.u32 %a2, %r0, 4;\nadd.s64 %a3, %a0, %a2;\nadd.s64 %a4, %a1, %a2;\nmul.wide.u32 %a5, "
         "%r1, 4;\n" +
         statements + "ret;\n}\n";
}

FoundNumbers run(const std::string& statements, uint32_t blocks, uint32_t threads, const std::vector<uint32_t>& in) {
  KernelLaunch launch;
  launch.grid = {blocks, 1, 1};
  launch.block = {threads, 1, 1};
  launch.parameters.resize(16);
  std::memcpy(launch.parameters.data(), &kIn, 8);
  std::memcpy(launch.parameters.data() + 8, &kOut, 8);
  const KnownValue known = [&](uint64_t address, int bytes) -> std::optional<uint64_t> {
    const uint64_t at = address - kIn;
    if (address < kIn || at + static_cast<uint64_t>(bytes) > in.size() * 4) return std::nullopt;
    uint64_t out = 0;
    std::memcpy(&out, reinterpret_cast<const char*>(in.data()) + at, static_cast<size_t>(bytes));
    return out;
  };
  return find_stored_numbers(*parse_ptx_with_stored_numbers(kernel(statements)), "k", launch, known);
}

std::vector<uint32_t> numbers(const FoundNumbers& found, size_t range = 0) {
  if (range >= found.stored.size() || !found.stored[range].known) return {};
  std::vector<uint32_t> out(found.stored[range].bytes.size() / 4);
  std::memcpy(out.data(), found.stored[range].bytes.data(), out.size() * 4);
  return out;
}

std::vector<uint32_t> counting(size_t n, uint32_t from = 0) {
  std::vector<uint32_t> out(n);
  std::iota(out.begin(), out.end(), from);
  return out;
}

TEST(StoredNumbers, OfNothingButItsThreads) {
  const FoundNumbers found = run("st.global.u32 [%a4], %r0;\n", 3, 70, {});
  ASSERT_EQ(found.stored.size(), 1U);
  EXPECT_EQ(found.stored[0].address, kOut);
  EXPECT_EQ(numbers(found), counting(210));
}

TEST(StoredNumbers, OfLoadedOnesOnlyIfTheyAreKnown) {
  const std::string add = "ld.global.u32 %r4, [%a3];\nadd.s32 %r4, %r4, 5;\nst.global.u32 [%a4], %r4;\n";
  EXPECT_EQ(numbers(run(add, 1, 64, counting(64))), counting(64, 5));
  EXPECT_EQ(run(add, 1, 64, {}).why_not, WhyNot::no_numbers);
  const FoundNumbers half = run(add, 1, 64, counting(32));  // the rest is not known
  ASSERT_EQ(half.stored.size(), 2U);
  EXPECT_EQ(numbers(half), counting(32, 5));
  EXPECT_FALSE(half.stored[1].known);
}

TEST(StoredNumbers, NotOfRealNumbers) {
  const std::string real = "ld.global.f32 %f0, [%a3];\nadd.f32 %f0, %f0, %f0;\nst.global.f32 [%a4], %f0;\n";
  EXPECT_EQ(run(real, 1, 64, counting(64)).why_not, WhyNot::no_numbers);
}

// Warps meet at the barrier: each sees what the others wrote.
TEST(StoredNumbers, ThroughSharedMemory) {
  const std::string reverse =
      "ld.global.u32 %r4, [%a3];\nmov.u32 %r5, room;\nmad.lo.s32 %r6, %r1, 4, %r5;\nst.shared.u32 [%r6], %r4;\nbar.sync 0;\n"
      "sub.s32 %r7, 127, %r1;\nmad.lo.s32 %r8, %r7, 4, %r5;\nld.shared.u32 %r9, [%r8];\nst.global.u32 [%a4], %r9;\n";
  std::vector<uint32_t> expected = counting(128);
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(numbers(run(reverse, 1, 128, counting(128))), expected);
}

// Zeros first, then counts: no barrier is between them, but all warps do one request after the other.
TEST(StoredNumbers, AHistogramByAtomics) {
  const std::string histogram =
      "setp.lt.u32 %p0, %r1, 4;\nadd.s64 %a6, %a1, %a5;\n@%p0 st.global.u32 [%a6], 0;\n"
      "ld.global.u32 %r4, [%a3];\nmul.wide.u32 %a5, %r4, 4;\nadd.s64 %a6, %a1, %a5;\natom.global.add.u32 %r5, [%a6], 1;\n";
  std::vector<uint32_t> in;
  for (uint32_t i = 0; i < 128; ++i) in.push_back(i % 3);
  EXPECT_EQ(numbers(run(histogram, 1, 128, in)), (std::vector<uint32_t>{43, 43, 42, 0}));
}

// Rows of eight halves; transposed, a lane gets two of its column.
TEST(StoredNumbers, MatricesFromSharedMemory) {
  const std::string fill =
      "mov.u32 %r5, room;\nmad.lo.s32 %r6, %r1, 4, %r5;\nst.shared.u32 [%r6], %r1;\nbar.sync 0;\nmad.lo.s32 %r7, %r1, 16, %r5;\n";
  const std::string store = "st.global.u32 [%a4], %r8;\n";
  EXPECT_EQ(numbers(run(fill + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r7];\n" + store, 1, 32, {})), counting(32));
  const std::vector<uint32_t> columns =
      numbers(run(fill + "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r8}, [%r7];\n" + store, 1, 32, {}));
  ASSERT_EQ(columns.size(), 32U);
  EXPECT_EQ(columns[0], 0U | 4U << 16);    // column 0, rows 0 and 1: the words 0 and 4
  EXPECT_EQ(columns[8], 1U | 5U << 16);    // column 2
  EXPECT_EQ(columns[3], 24U | 28U << 16);  // rows 6 and 7
}

TEST(StoredNumbers, AnUnknownConditionEndsIt) {
  const std::string branch =
      "ld.global.u32 %r4, [%a1];\nsetp.eq.u32 %p0, %r4, 7;\n@%p0 bra END;\nst.global.u32 [%a4], %r0;\nEND:\nbar.sync 0;\n";
  EXPECT_EQ(run(branch, 1, 64, {}).why_not, WhyNot::unknown);
  const std::string place = "ld.global.u32 %r4, [%a1];\nmul.wide.u32 %a5, %r4, 4;\nadd.s64 %a6, %a1, %a5;\nst.global.u32 [%a6], %r0;\n";
  EXPECT_EQ(run(place, 1, 64, {}).why_not, WhyNot::unknown);
}

TEST(StoredNumbers, AGuardThatIsNotKnownLeavesTheNumberUnknown) {
  const FoundNumbers found =
      run("ld.global.u32 %r4, [%a1+4096];\nsetp.eq.u32 %p0, %r4, 7;\nst.global.u32 [%a4], %r0;\n@%p0 st.global.u32 [%a4], 9;\n", 1, 32, {});
  ASSERT_EQ(found.stored.size(), 1U);
  EXPECT_FALSE(found.stored[0].known);
}

TEST(StoredNumbers, ALoopThatStoresLittleIsLeft) {
  const std::string loop =
      "mov.u32 %r4, 0;\nAGAIN:\nadd.s32 %r4, %r4, 1;\nsetp.lt.u32 %p0, %r4, 2000000;\n@%p0 bra AGAIN;\nst.global.u32 [%a4], %r4;\n";
  EXPECT_EQ(run(loop, 1, 32, {}).why_not, WhyNot::too_long);
  EXPECT_EQ(run("AGAIN:\nbra AGAIN;\nst.global.u32 [%a4], %r0;\n", 1, 32, {}).why_not, WhyNot::too_long);
}

TEST(StoredNumbers, RandomKernelsEnd) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    const RandomKernel kernel = random_kernel(seed);
    const FoundNumbers found = find_stored_numbers(*parse_ptx_with_stored_numbers(kernel.text), "k", kernel.launch, values_of_seed(seed));
    for (size_t n = 1; n < found.stored.size(); ++n)
      EXPECT_GE(found.stored[n].address, found.stored[n - 1].address + found.stored[n - 1].bytes.size());
  }
}

TEST(StoredNumbers, DamagedTextIsSurvived) {
  std::mt19937 random(1);
  const std::string whole = ptx_file("count_into");
  ASSERT_FALSE(whole.empty());
  for (int round = 0; round < 60; ++round) {
    const std::string text = damaged(whole, round, &random);
    KernelLaunch launch;
    launch.block = {128, 1, 1};
    for (int word = 0; word < 16; ++word) launch.parameters += std::string("d\0\0\0", 4);
    try {
      find_stored_numbers(*parse_ptx_with_stored_numbers(text), "count_into", launch, [](uint64_t, int) { return 3; });
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace gpucast

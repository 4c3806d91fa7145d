// Counts of compiled kernels (tests/ptx) against what their formulas say.
#include <gtest/gtest.h>

#include <random>

#include "gpucast/error.h"
#include "src/kernels/byte_ranges.h"
#include "src/kernels/kernel_counts.h"
#include "src/kernels/random_kernel.h"

namespace gpucast {
namespace {

constexpr uint64_t kA = 0x7f0000000000, kB = 0x7f1000000000, kC = 0x7f2000000000;

// Pointers of 8 bytes and integers of 4, each aligned to its size; two pointers that Triton adds follow.
struct Arguments {
  std::string bytes;
  Arguments& pointer(uint64_t value) { return add(value, 8); }
  Arguments& number(uint64_t value) { return add(value, 4); }
  Arguments& add(uint64_t value, size_t size) {
    bytes.resize((bytes.size() + size - 1) / size * size);
    for (size_t b = 0; b < size; ++b) bytes.push_back(static_cast<char>(value >> (8 * b)));
    return *this;
  }
};

KernelCounts count(const std::string& file, const std::string& name, std::array<uint32_t, 3> grid, uint32_t threads, Arguments arguments,
                   const KnownValue& known = {}) {
  KernelLaunch launch;
  launch.grid = grid;
  launch.block = {threads, 1, 1};
  launch.parameters = arguments.pointer(0).pointer(0).bytes;
  KernelCounts out = count_kernel(*parse_ptx(ptx_file(file)), name, launch, known);
  EXPECT_EQ(out.limit, "");
  EXPECT_TRUE(out.not_understood.empty());
  return out;
}

TEST(CountKernel, CopyMovesEachByteOnce) {
  const double n = 1'000'003;
  const KernelCounts out = count("copy", "copy", {977, 1, 1}, 128, Arguments().pointer(kA).pointer(kB).number(1'000'003));
  EXPECT_EQ(out.warps, 977 * 4);
  EXPECT_FALSE(out.assumed_values);
  EXPECT_EQ(out.unique_load_bytes, 4 * n);
  EXPECT_EQ(out.unique_store_bytes, 4 * n);
  EXPECT_EQ(out.block_load_bytes, 4 * n);
  // A thread reads 4 neighbours one by one: each sector is requested by 4 instructions.
  EXPECT_NEAR(out.load_sectors, 4 * n * 4 / 32, 4);
  EXPECT_EQ(out.load_sectors, out.store_sectors);
  EXPECT_EQ(out.longest.loads, 1);
}

TEST(CountKernel, ColumnsTouchASectorForEachElement) {
  const KernelCounts out =
      count("read_columns", "read_columns", {64, 4, 1}, 128, Arguments().pointer(kA).pointer(kB).number(1024).number(64));
  EXPECT_EQ(out.load_sectors, 64 * 1024);
  EXPECT_EQ(out.unique_load_bytes, 4 * 64 * 1024);
  EXPECT_EQ(out.unique_store_bytes, 4 * 64 * 1024);
}

TEST(CountKernel, SoftmaxReadsItsRowsOnce) {
  const KernelCounts out = count("row_softmax", "row_softmax", {300, 1, 1}, 128, Arguments().pointer(kA).pointer(kB).number(500));
  EXPECT_EQ(out.unique_load_bytes, 300 * 500 * 4);
  EXPECT_EQ(out.block_load_bytes, 300 * 500 * 4);
  EXPECT_EQ(out.unique_store_bytes, 300 * 500 * 4);
  EXPECT_GT(out.barriers, 0);
  EXPECT_GT(out.special, 0);
  EXPECT_GT(out.longest.shared_waits, 2);  // two reductions
}

TEST(CountKernel, KnownValuesSayWhichRowsAreRead) {
  const Arguments arguments = Arguments().pointer(kA).pointer(kB).pointer(kC).number(1024);
  const KernelCounts one = count("gather_rows", "gather_rows", {8, 1, 1}, 128, arguments, [](uint64_t, int) { return 7; });
  const KernelCounts many = count("gather_rows", "gather_rows", {8, 1, 1}, 128, arguments, [](uint64_t at, int) { return (at - kB) * 2; });
  EXPECT_EQ(one.unique_load_bytes, 4096 + 8 * 8);
  EXPECT_EQ(many.unique_load_bytes, 8 * 4096 + 8 * 8);
  EXPECT_EQ(one.load_sectors, many.load_sectors);
  EXPECT_EQ(one.gathered_sectors, 8 * 4096 / 32);  // not the indices themselves
  EXPECT_EQ(many.gathered_sectors, 8 * 4096 / 32);
  EXPECT_EQ(many.longest.loads, 2);
  EXPECT_FALSE(many.assumed_values);
  EXPECT_TRUE(count("gather_rows", "gather_rows", {8, 1, 1}, 128, arguments).assumed_values);
}

TEST(CountKernel, UnknownIndicesAreSpread) {
  const Arguments arguments = Arguments().pointer(kA).pointer(kB).number(4096);
  const KernelCounts out = count("count_into", "count_into", {8, 1, 1}, 128, arguments);
  EXPECT_GT(out.atomic_sectors, 0.7 * 4096);
  EXPECT_LE(out.atomic_sectors, 4096);
  EXPECT_TRUE(out.assumed_values);
  const KernelCounts rows =
      count("gather_rows", "gather_rows", {8, 1, 1}, 128, Arguments().pointer(kA).pointer(kB).pointer(kC).number(1024));
  EXPECT_EQ(rows.unique_load_bytes, 8 * 4096 + 8 * 8);
}

TEST(CountKernel, AtomicsOfAWarpOnOnePlaceAreDoneOneAfterAnother) {
  const auto counted = [](const KnownValue& known) {
    KernelLaunch launch;
    launch.grid = {8, 1, 1};
    launch.block = {128, 1, 1};
    launch.dynamic_shared_bytes = 8192;  // indices pass through it
    launch.parameters = Arguments().pointer(kA).pointer(kB).number(4096).pointer(0).pointer(0).bytes;
    return count_kernel(*parse_ptx(ptx_file("count_into")), "count_into", launch, known);
  };
  const KernelCounts one = counted([](uint64_t, int) { return 7; });
  EXPECT_EQ(one.atomic_passes, 4096);
  EXPECT_EQ(one.atomic_bytes, 4);
  const KernelCounts many = counted([](uint64_t at, int) { return (at - kA) / 4 % 4096; });
  EXPECT_EQ(many.atomic_passes, 4096 / 32);
  EXPECT_EQ(many.atomic_bytes, 4 * 4096);
  const KernelCounts unknown = counted([](uint64_t, int) { return std::optional<uint64_t>(); });
  EXPECT_TRUE(unknown.assumed_values);
  EXPECT_EQ(unknown.atomic_passes, 0);
}

TEST(CountKernel, CopiesGatherNothing) {
  const KernelCounts out = count("copy", "copy", {977, 1, 1}, 128, Arguments().pointer(kA).pointer(kB).number(1'000'003));
  EXPECT_EQ(out.gathered_sectors, 0);
  EXPECT_EQ(out.division, 0);
}

TEST(CountKernel, MatmulIsTwoMNKOfItsTiles) {
  const double m = 1024, n = 800, k = 512;
  const Arguments arguments =
      Arguments().pointer(kA).pointer(kB).pointer(kC).number(1000).number(777).number(512).number(512).number(784).number(784);
  const KernelCounts out = count("matmul", "matmul", {32, 25, 1}, 64, arguments);
  EXPECT_EQ(out.tensor_flops[static_cast<size_t>(Precision::fp16)], 2 * m * n * k);
  EXPECT_EQ(out.block_load_bytes, 25 * 1000 * 512 * 2 + 32 * 777 * 512 * 2);
  EXPECT_EQ(out.unique_load_bytes, 1000 * 512 * 2 + (511 * 784 + 777) * 2);  // b with the gaps between its rows
}

TEST(CountKernel, BuffersThatTouchEachOtherCountWhole) {
  const uint64_t a_end = kA + 1000 * 512 * 2;
  const auto unique = [](uint64_t b) {
    const Arguments arguments =
        Arguments().pointer(kA).pointer(b).pointer(kC).number(1000).number(777).number(512).number(512).number(784).number(784);
    return count("matmul", "matmul", {32, 25, 1}, 64, arguments).unique_load_bytes;
  };
  EXPECT_EQ(unique(a_end), unique(kB));
}

TEST(CountKernel, AWarpgroupsProductCountsOnce) {
  const Arguments arguments =
      Arguments().pointer(kA).pointer(kB).pointer(kC).number(1024).number(512).number(4096).number(4096).number(512).number(512);
  const KernelCounts out = count("matmul_wgmma", "matmul", {16, 8, 1}, 128, arguments);
  EXPECT_EQ(out.tensor_flops[static_cast<size_t>(Precision::fp16)], 2.0 * 1024 * 512 * 4096);
  EXPECT_EQ(out.async_load_bytes, 8.0 * 1024 * 4096 * 2);  // b passes through registers
  EXPECT_EQ(out.block_load_bytes, 8.0 * 1024 * 4096 * 2 + 16.0 * 512 * 4096 * 2);
  EXPECT_EQ(out.unique_load_bytes, (1024.0 + 512) * 4096 * 2);
}

TEST(CountKernel, CausalAttentionSkipsWhatIsMasked) {
  const uint32_t tokens = 2048, heads = 8, tiles = tokens / 128;
  Arguments arguments = Arguments().pointer(kA).pointer(kB).pointer(kC).pointer(0x7f3000000000).number(0x3f800000).number(tokens);
  const KernelCounts out = count("attention", "attention", {tiles, heads, 1}, 128, arguments);
  const double pairs = heads * 128.0 * 128 * tiles * (tiles + 1) / 2;
  EXPECT_EQ(out.tensor_flops[static_cast<size_t>(Precision::fp16)], 4 * 64 * pairs);
}

KernelCounts count_body(const std::string& statements, std::array<uint32_t, 3> grid, const KnownValue& known = {}) {
  KernelLaunch launch;
  launch.grid = grid;
  launch.block = {128, 1, 1};
  launch.parameters = Arguments().pointer(kA).pointer(kB).bytes;
  const std::string text =
      ".visible .entry k(.param .u64 pa, .param .u64 pb) { .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %a<8>;"
      "ld.param.u64 %a0, [pa]; ld.param.u64 %a1, [pb]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, 0;" +
      statements + "ret; }";
  return count_kernel(*parse_ptx(text), "k", launch, known);
}

// What inductor makes of an index: it is loaded, then compared with the number of rows.
TEST(CountKernel, AssertionsOfUnknownValuesHold) {
  const std::string load = "ld.global.b32 %r1, [%a0]; setp.lt.u32 %p1, %r1, 100;", store = "st.global.b32 [%a1], %r0;";
  const std::string fail = "{ call.uni __assertfail, (); }";
  const std::vector<std::string> bodies = {
      load + "@%p1 bra OK; bra.uni BAD; OK: " + store + "ret; BAD: " + fail + "trap;",
      load + "not.pred %p2, %p1; @%p2 bra BAD; " + store + "ret; BAD: " + fail + "trap;",
      load + "@%p1 bra OK; " + fail + "bra.uni OK; OK: " + store,
      load + "@!%p1 trap; " + store,
  };
  for (const std::string& body : bodies) {
    const KernelCounts out = count_body(body, {10, 1, 1});
    EXPECT_EQ(out.store_sectors, 10 * 4) << body;
    EXPECT_FALSE(out.assumed_values) << body;
    EXPECT_TRUE(out.not_understood.empty()) << body;
    EXPECT_EQ(count_body(body, {10, 1, 1}, [](uint64_t, int) { return 99; }).store_sectors, 10 * 4) << body;
    EXPECT_EQ(count_body(body, {10, 1, 1}, [](uint64_t, int) { return 100; }).store_sectors, 0) << body;
  }
}

// An atomic that releases and acquires waits for what came before, and what follows waits for it. Triton's are so unless `sem` says
// otherwise.
TEST(CountKernel, MemoryOrderMakesTheChainLong) {
  const auto cycles = [](const std::string& order, const std::string& between = "") {
    std::string statements;
    for (int i = 0; i < 10; ++i) statements += "atom.global.gpu." + order + ".add.u32 %r2, [%a0], 1;" + between;
    return count_body(statements, {4, 1, 1}).longest.cycles;
  };
  EXPECT_LT(cycles("relaxed"), 2 * 500);
  EXPECT_NEAR(cycles("acq_rel"), 10 * 2 * 500, 200);
  EXPECT_NEAR(cycles("release"), 10 * 500, 600);
  EXPECT_NEAR(cycles("acquire"), 10 * 500, 200);
  EXPECT_NEAR(cycles("relaxed", "membar.gl;"), 10 * 500, 200);
  EXPECT_LT(cycles("relaxed", "fence.acq_rel.cta;"), 2 * 500);
}

// Blocks do as much as their number says: all sizes of a grid add up exactly.
TEST(CountKernel, WorkThatGrowsAlongAnAxisAddsUpExactly) {
  const std::string loop = "L: ld.global.b32 %r2, [%a0]; add.u32 %r1, %r1, 1; setp.le.u32 %p0, %r1, %r0; @%p0 bra L;";
  for (const uint32_t blocks : {300U, 301U, 302U, 303U, 517U}) {
    const double n = blocks;
    EXPECT_EQ(count_body(loop, {blocks, 1, 1}).load_sectors, 4 * n * (n + 1) / 2) << blocks;
    EXPECT_EQ(count_body(loop, {blocks, 64, 1}).load_sectors, 64 * 4 * n * (n + 1) / 2) << blocks;
  }
}

// All blocks but those at the ends do more.
TEST(CountKernel, OddBlocksAtTheEndsCountForThemselves) {
  const std::string statements =
      "mov.u32 %r3, %nctaid.x; sub.u32 %r3, %r3, 1; ld.global.b32 %r2, [%a0]; setp.eq.u32 %p0, %r0, 0; @%p0 bra E;"
      "setp.eq.u32 %p0, %r0, %r3; @%p0 bra E; ld.global.b32 %r2, [%a1]; E:";
  EXPECT_EQ(count_body(statements, {1000, 1, 1}).load_sectors, 4 * (1000 + 998));
}

TEST(CountKernel, ALongLoopIsCountedOrEndsAtALimit) {
  const std::string end = "setp.ne.u32 %p0, %r1, 2147483647; st.global.b32 [%a0], %r1; @%p0 bra L;";
  const KernelCounts alike = count_body("L: add.u32 %r1, %r1, 1;" + end, {500, 1, 1});
  EXPECT_EQ(alike.limit, "");
  EXPECT_EQ(alike.store_sectors, 500.0 * 4 * 2147483647);
  EXPECT_EQ(count_body("L: mad.lo.u32 %r1, %r1, 1664525, 1013904223;" + end, {500, 1, 1}).limit, "a warp's most steps");
}

TEST(CountKernel, WhatAKernelWroteIsNotKnown) {
  const auto five = [](uint64_t, int) { return 5; };
  const std::string index = "ld.global.b32 %r1, [%a0+64]; mul.wide.u32 %a2, %r1, 4; add.s64 %a2, %a1, %a2; ld.global.b32 %r2, [%a2];";
  EXPECT_FALSE(count_body(index, {1, 1, 1}, five).assumed_values);
  EXPECT_TRUE(count_body("st.global.b32 [%a0+64], %r0;" + index, {1, 1, 1}, five).assumed_values);
  EXPECT_TRUE(count_body("red.global.add.u32 [%a0+64], %r0;" + index, {1, 1, 1}, five).assumed_values);
  EXPECT_FALSE(count_body("st.global.b32 [%a0], %r0;" + index, {1, 1, 1}, five).assumed_values);
  // One instruction that stores again and again, from 64 bytes before that number on.
  const auto stored = [&](int stride, int rounds) {
    const std::string loop = "mov.u64 %a3, %a0; L: st.global.b32 [%a3], %r0; add.s64 %a3, %a3, " + std::to_string(stride) +
                             "; add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, " + std::to_string(rounds) + "; @%p0 bra L;";
    return count_body(loop + index, {1, 1, 1}, five).assumed_values;
  };
  EXPECT_FALSE(stored(4096, 2)) << "before it and after it";
  EXPECT_FALSE(stored(4, 16));
  EXPECT_TRUE(stored(4, 1000)) << "in rounds that are not run one by one";
}

TEST(RoughByteSet, JoinsWhatIsNearestWhereItHasTooManyRanges) {
  ptx::RoughByteSet set;
  for (uint64_t n = 0; n < 64; ++n) set.add({1000 * n, 1000 * n + 10});
  EXPECT_TRUE(set.touches({1009, 1010}));
  EXPECT_FALSE(set.touches({1010, 2000}));
  EXPECT_FALSE(set.touches({0, 0}));
  set.add({10, 20});  // next to the first one
  EXPECT_TRUE(set.touches({15, 16}));
  EXPECT_FALSE(set.touches({20, 21}));
  set.add({5500, 5510});
  set.add({5700, 5710});
  EXPECT_TRUE(set.touches({5600, 5601}));
  EXPECT_FALSE(set.touches({63010, 64000}));
  set.clear();
  set.add({0, 63});
  EXPECT_TRUE(set.touches({10, 11}));
  EXPECT_FALSE(set.touches({63, 64}));
}

// A warp reads `rounds` lines of 128 bytes that are `stride` apart, from the `more`-th round on also another buffer; three addresses in
// shared memory take turns.
KernelCounts count_loop(uint32_t rounds, uint32_t stride, uint32_t more) {
  const std::string code = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry walk(.param .u64 a, .param .u64 b, .param .u32 rounds, .param .u32 stride, .param .u32 more)
{
  .reg .pred %p<4>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u32 %r1, [rounds];
  ld.param.u32 %r2, [stride];
  ld.param.u32 %r3, [more];
  mov.u32 %r4, %tid.x;
  mul.wide.u32 %rd3, %r4, 4;
  add.s64 %rd1, %rd1, %rd3;
  add.s64 %rd2, %rd2, %rd3;
  cvt.u64.u32 %rd4, %r2;
  mov.u32 %r5, 0;
  mov.u32 %r6, 0;
$LOOP:
  ld.global.u32 %r7, [%rd1];
  setp.ge.u32 %p1, %r5, %r3;
  @%p1 ld.global.u32 %r8, [%rd2];
  st.shared.u32 [%r6], %r7;
  add.s32 %r6, %r6, 128;
  setp.eq.s32 %p2, %r6, 384;
  selp.b32 %r6, 0, %r6, %p2;
  add.s64 %rd1, %rd1, %rd4;
  add.s32 %r5, %r5, 1;
  setp.lt.u32 %p3, %r5, %r1;
  @%p3 bra $LOOP;
  ret;
}
)";
  KernelLaunch launch;
  launch.block = {32, 1, 1};
  launch.parameters = Arguments().pointer(kA).pointer(kB).number(rounds).number(stride).number(more).bytes;
  KernelCounts out = count_kernel(*parse_ptx(code), "walk", launch);
  EXPECT_TRUE(out.not_understood.empty());
  return out;
}

TEST(CountKernel, RoundsOfALoopThatAreAlikeAreCountedAndNotRun) {
  for (const uint32_t rounds : {3U, 30U, 31U, 32U, 100U, 5001U, 1U << 20}) {
    const KernelCounts out = count_loop(rounds, 128, rounds);
    EXPECT_EQ(out.limit, "") << rounds;
    EXPECT_EQ(out.load_sectors, 4.0 * rounds);
    EXPECT_EQ(out.unique_load_bytes, 128.0 * rounds);
    EXPECT_EQ(out.shared_wavefronts, rounds);
    EXPECT_EQ(out.memory_repeats, rounds);
    EXPECT_EQ(out.memory, 2.0 * rounds + rounds);  // a load that no lane makes is issued, too
  }
  const KernelCounts apart = count_loop(9001, 4096, 9001);
  EXPECT_EQ(apart.unique_load_bytes, 128.0 * 9001);
  EXPECT_EQ(count_loop(9001, 0, 9001).unique_load_bytes, 128);
}

TEST(CountKernel, ALoopThatChangesInItsMiddleIsFollowed) {
  for (const uint32_t more : {0U, 1U, 17U, 500U, 998U, 999U}) {
    const KernelCounts out = count_loop(1000, 128, more);
    EXPECT_EQ(out.load_sectors, 4.0 * (1000 + 1000 - more)) << more;
    EXPECT_EQ(out.unique_load_bytes, 128.0 * 1000 + 128);
  }
}

// Compilers count down to zero and ask whether it was reached: beyond it the loop would go on.
TEST(CountKernel, ALoopThatEndsAtOneNumberEndsThere) {
  for (const char* type : {"s32", "s64"}) {
    for (const uint32_t rounds : {20U, 21U, 22U, 61U, 1000U, 4097U}) {
      const bool wide = type[1] == '6';
      const std::string r = wide ? "%rd3" : "%r2";
      const std::string code = std::string(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry down(.param .u64 a, .param .u32 rounds)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [a];
  ld.param.u32 %r2, [rounds];
  cvt.u64.u32 %rd3, %r2;
$LOOP:
  ld.global.u32 %r4, [%rd1];
  add.s64 %rd1, %rd1, 4;
)") + "  add." + type + " " + r +
                               ", " + r + ", -1;\n  setp.ne." + type + " %p1, " + r + ", 0;\n  @%p1 bra $LOOP;\n  ret;\n}\n";
      KernelLaunch launch;
      launch.block = {32, 1, 1};
      launch.parameters = Arguments().pointer(kA).number(rounds).bytes;
      const KernelCounts out = count_kernel(*parse_ptx(code), "down", launch);
      EXPECT_EQ(out.limit, "") << type << " " << rounds;
      EXPECT_EQ(out.load_sectors, rounds);
      EXPECT_EQ(out.unique_load_bytes, 4.0 * rounds);
    }
  }
}

TEST(CountKernel, ALoopOfBillionsOfRoundsEnds) {
  const KernelCounts out = count_loop(1U << 31, 128, 1U << 31);
  EXPECT_EQ(out.limit, "");
  EXPECT_EQ(out.load_sectors, 4.0 * (1U << 31));
  EXPECT_EQ(count_loop(1U << 31, 4096, 1U << 31).limit, "a warp's most steps");  // too many places for unique bytes
}

TEST(CountKernel, WhatCannotBeCountedSaysSo) {
  KernelLaunch launch;
  const auto module = parse_ptx(".visible .entry k() { .reg .b32 %r<3>; L: add.s32 %r1, %r1, 1; foo.bar %r2, %r1; bra L; }");
  EXPECT_NE(count_kernel(*module, "other", launch).limit, "");
  const KernelCounts out = count_kernel(*module, "k", launch);
  EXPECT_EQ(out.limit, "a warp's most steps");
  EXPECT_EQ(out.not_understood, std::vector<std::string>{"foo.bar"});
  EXPECT_THROW(parse_ptx("no code"), Error);
}

// Rows of a table by indices that the warps of a block hand to each other.
TEST(CountKernel, KnownValuesPassThroughSharedMemory) {
  const auto module = parse_ptx(
      ".shared .align 16 .b8 room[512];\n.visible .entry k(.param .u64 indices, .param .u64 table) {\n"
      ".reg .b32 %r<16>;\n.reg .b64 %a<16>;\nld.param.u64 %a0, [indices];\nld.param.u64 %a1, [table];\nmov.u32 %r0, %tid.x;\n"
      "mul.wide.u32 %a2, %r0, 4;\nadd.s64 %a3, %a0, %a2;\nld.global.u32 %r1, [%a3];\nmov.u32 %r2, room;\nmad.lo.s32 %r3, %r0, 4, %r2;\n"
      "st.shared.u32 [%r3], %r1;\nbar.sync 0;\nsub.s32 %r4, 63, %r0;\nmad.lo.s32 %r5, %r4, 4, %r2;\nld.shared.u32 %r6, [%r5];\n"
      "mul.wide.u32 %a4, %r6, 128;\nadd.s64 %a5, %a1, %a4;\nld.global.u32 %r7, [%a5];\nret;\n}\n");
  KernelLaunch launch;
  launch.grid = {40, 1, 1};
  launch.block = {64, 1, 1};
  launch.parameters = Arguments().pointer(kA).pointer(kB).bytes;
  const auto index = [](uint64_t at) -> uint64_t { return (at - kA) / 4 % 10; };
  const KnownValue known = [&](uint64_t at, int) -> std::optional<uint64_t> {
    if (at < kA || at >= kA + 256) return std::nullopt;
    return index(at);
  };
  const KernelCounts out = count_kernel(*module, "k", launch, known);
  EXPECT_EQ(out.limit, "");
  EXPECT_FALSE(out.assumed_values);
  EXPECT_EQ(out.load_sectors, 40 * (8 + 2 * 10));  // each warp reads the ten rows
  EXPECT_EQ(out.unique_load_bytes, 256 + 10 * 4);
  EXPECT_TRUE(count_kernel(*module, "k", launch).assumed_values);
}

// A list of products in one launch, as Triton makes it: for each tile, both warps count the groups that end before it, add their counts
// through shared memory, and read the length of the tile's inner loop.
TEST(CountKernel, WarpsFindTheirTasksTogether) {
  const auto module = parse_ptx(
      ".shared .align 16 .b8 room[64];\n.visible .entry k(.param .u64 ends, .param .u64 lengths, .param .u64 lines, .param .u32 tiles) {\n"
      ".reg .pred %p<4>;\n.reg .b32 %r<20>;\n.reg .b64 %a<8>;\nld.param.u64 %a0, [ends];\nld.param.u64 %a1, [lengths];\n"
      "ld.param.u64 %a2, [lines];\nld.param.u32 %r15, [tiles];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %nctaid.x;\n"
      "mul.wide.u32 %a3, %r0, 4;\nadd.s64 %a4, %a0, %a3;\nld.global.u32 %r3, [%a4];\nadd.s64 %a5, %a2, %a3;\nand.b32 %r4, %r0, 31;\n"
      "setp.eq.u32 %p0, %r4, 0;\nshr.u32 %r5, %r0, 5;\nshl.b32 %r5, %r5, 2;\nmov.u32 %r6, room;\nadd.u32 %r5, %r5, %r6;\n"
      "TILE: setp.le.u32 %p1, %r3, %r1;\nselp.b32 %r7, 1, 0, %p1;\nbar.sync 0;\nredux.sync.add.s32 %r8, %r7, 0xffffffff;\n"
      "@%p0 st.shared.b32 [%r5], %r8;\nbar.sync 0;\nld.shared.b32 %r9, [room];\nld.shared.b32 %r10, [room+4];\n"
      "add.u32 %r11, %r9, %r10;\nmul.wide.u32 %a6, %r11, 4;\nadd.s64 %a6, %a1, %a6;\nld.global.u32 %r12, [%a6];\nmov.u32 %r13, 0;\n"
      "mov.u64 %a7, %a5;\nROUND: ld.global.u32 %r14, [%a7];\nadd.s64 %a7, %a7, 4096;\nbar.sync 0;\nadd.u32 %r13, %r13, 1;\n"
      "setp.lt.u32 %p2, %r13, %r12;\n@%p2 bra ROUND;\nadd.u32 %r1, %r1, %r2;\nsetp.lt.u32 %p3, %r1, %r15;\n@%p3 bra TILE;\nret;\n}\n");
  constexpr uint64_t kGroups = 64, kTilesOfGroup = 37, kTiles = kGroups * kTilesOfGroup;
  const auto length = [](uint64_t group) { return 1 + group * group % 50; };
  const KnownValue known = [&](uint64_t at, int) -> std::optional<uint64_t> {
    if (at >= kA && at < kA + 4 * kGroups) return ((at - kA) / 4 + 1) * kTilesOfGroup;
    if (at >= kB && at < kB + 4 * kGroups) return length((at - kB) / 4);
    return std::nullopt;
  };
  KernelLaunch launch;
  launch.grid = {4, 1, 1};
  launch.block = {64, 1, 1};
  launch.parameters = Arguments().pointer(kA).pointer(kB).pointer(kC).number(kTiles).bytes;
  const KernelCounts out = count_kernel(*module, "k", launch, known);
  double rounds = 0;
  for (uint64_t group = 0; group < kGroups; ++group) rounds += static_cast<double>(kTilesOfGroup * length(group));
  EXPECT_EQ(out.limit, "");
  EXPECT_FALSE(out.assumed_values);
  EXPECT_EQ(out.load_sectors, 2 * (4 * 4 + kTiles + 4 * rounds));
  EXPECT_EQ(out.barriers, 2 * (2 * kTiles + rounds));
  EXPECT_TRUE(count_kernel(*module, "k", launch).assumed_values);
}

// Each block takes the next tile of all until there is none: how many it gets, other blocks decide.
TEST(CountKernel, WhatAnAtomicGivesABlockIsNotKnown) {
  const auto module = parse_ptx(
      ".shared .align 16 .b8 room[16];\n.visible .entry k(.param .u64 next, .param .u64 lines) {\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n"
      ".reg .b64 %a<8>;\nld.param.u64 %a0, [next];\nld.param.u64 %a1, [lines];\nmov.u32 %r0, %tid.x;\nsetp.eq.u32 %p0, %r0, 0;\n"
      "TILE: bar.sync 0;\n@%p0 atom.global.add.u32 %r1, [%a0], 1;\n@%p0 st.shared.b32 [room], %r1;\nbar.sync 0;\n"
      "ld.shared.b32 %r2, [room];\nsetp.ge.u32 %p1, %r2, 5000;\n@%p1 bra END;\nld.global.u32 %r3, [%a1];\nbra TILE;\nEND: ret;\n}\n");
  KernelLaunch launch;
  launch.grid = {4, 1, 1};
  launch.block = {64, 1, 1};
  launch.parameters = Arguments().pointer(kA).pointer(kB).bytes;
  const KnownValue zero = [](uint64_t at, int) { return at == kA ? std::optional<uint64_t>(0) : std::nullopt; };
  const KernelCounts out = count_kernel(*module, "k", launch, zero);
  EXPECT_TRUE(out.assumed_values);
  EXPECT_LT(out.load_sectors, 1000);
}

// Triton's specialized warps: the first warp stores each worker's task and its arguments; a worker waits, reads its task, and ends with the
// last one. Here task 1 reads as many lines of 128 bytes as the argument says, and task 3 ends.
TEST(CountKernel, AWarpReadsTheTaskThatTheFirstWarpGaveIt) {
  const auto module = parse_ptx(
      ".shared .align 16 .b8 room[64];\n.visible .entry k(.param .u64 lines, .param .u32 many) {\n.reg .pred %p<4>;\n.reg .b32 %r<16>;\n"
      ".reg .b64 %a<8>;\nld.param.u64 %a0, [lines];\nld.param.u32 %r9, [many];\nmov.u32 %r0, %tid.x;\nshr.u32 %r1, %r0, 5;\n"
      "setp.gt.u32 %p0, %r1, 0;\n@%p0 bra WORKER;\n"
      "st.shared.b32 [room+32], 769;\nst.shared.b32 [room+16], %r9;\nbarrier.sync 1;\nbarrier.sync 1;\n"
      "st.shared.b32 [room+32], 771;\nbarrier.sync 1;\nret;\n"
      "WORKER: mov.u32 %r2, room;\nadd.u32 %r3, %r2, %r1;\n"
      "AGAIN: barrier.sync 1;\nld.shared.b8 %r4, [%r3+31];\nsetp.eq.u32 %p1, %r4, 3;\n@%p1 bra END;\nld.shared.b32 %r5, [room+16];\n"
      "mov.u32 %r6, 0;\nand.b32 %r7, %r0, 31;\nmul.wide.u32 %a1, %r7, 4;\nadd.s64 %a1, %a0, %a1;\n"
      "LINE: ld.global.u32 %r8, [%a1];\nadd.s64 %a1, %a1, 128;\nadd.u32 %r6, %r6, 1;\nsetp.lt.u32 %p2, %r6, %r5;\n@%p2 bra LINE;\n"
      "barrier.sync 1;\nbra AGAIN;\nEND: ret;\n}\n");
  KernelLaunch launch;
  launch.grid = {6, 1, 1};
  launch.block = {96, 1, 1};
  launch.parameters = Arguments().pointer(kA).number(37).bytes;
  const KernelCounts out = count_kernel(*module, "k", launch);
  EXPECT_EQ(out.limit, "");
  EXPECT_FALSE(out.assumed_values);
  EXPECT_EQ(out.load_sectors, 6 * 37 * 4);  // warp 1 has task 1, and warp 2 begins with task 3
  EXPECT_EQ(out.unique_load_bytes, 37 * 128);
}

// A wait is for the copies that signal its own barrier. The second copy begins after a load.
TEST(CountKernel, AWaitIsForItsOwnBarrier) {
  const auto cycles = [](const std::string& barrier) {
    const std::string to = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r5], [%a0], 128, ";
    return count_body("mov.u32 %r4, 64; mov.u32 %r5, 128; mov.u32 %r6, 72;" + to +
                          "[%r4]; ld.global.b32 %r2, [%a1]; cvt.u64.u32 %a2, %r2;" + "and.b64 %a2, %a2, 64; add.s64 %a0, %a0, %a2;" + to +
                          "[%r6];" + "mbarrier.try_wait.parity.shared::cta.b64 %p1, [" + barrier + "], 0;",
                      {1, 1, 1})
        .longest.cycles;
  };
  EXPECT_NEAR(cycles("%r4"), 500, 100);
  EXPECT_NEAR(cycles("%r6"), 1000, 100);
}

// Text that is cut or changed anywhere ends in an answer or in an Error.
TEST(CountKernel, DamagedTextIsSurvived) {
  std::mt19937 random(1);
  for (const char* name : {"copy", "row_softmax", "matmul"}) {
    const std::string whole = ptx_file(name);
    for (int round = 0; round < 25; ++round) {
      const std::string text = damaged(whole, round, &random);
      KernelLaunch launch;
      launch.block = {64, 1, 1};
      for (int word = 0; word < 16; ++word) launch.parameters += std::string("d\0\0\0", 4);
      try {
        const auto module = parse_ptx(text);
        for (const char* entry : {"copy", "row_softmax", "matmul"}) count_kernel(*module, entry, launch);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace gpucast

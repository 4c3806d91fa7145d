// Measures the time to count one launch, and to read a kernel's text, for kernels of tests/ptx. It checks the counts, too.

#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "src/kernels/kernel_counts.h"

namespace gpucast {
namespace {

constexpr uint64_t kA = 0x7f0000000000, kB = 0x7f1000000000, kC = 0x7f2000000000, kD = 0x7f3000000000;

struct Case {
  std::string file, kernel;
  std::array<uint32_t, 3> grid;
  uint32_t threads;
  std::vector<uint64_t> pointers;
  std::vector<uint32_t> numbers;
  double KernelCounts::*checked;  // nullptr: the FLOPs of matrix instructions in fp16
  double expected;
};

std::string text_of(const Case& c) {
  std::ifstream in(std::string(GPUCAST_SOURCE_DIR) + "/tests/ptx/" + c.file + ".ptx");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Two pointers that Triton adds come last.
KernelLaunch launch_of(const Case& c) {
  KernelLaunch out;
  out.grid = c.grid;
  out.block = {c.threads, 1, 1};
  const auto add = [&](uint64_t value, size_t bytes) {
    out.parameters.resize((out.parameters.size() + bytes - 1) / bytes * bytes);
    for (size_t b = 0; b < bytes; ++b) out.parameters.push_back(static_cast<char>(value >> (8 * b)));
  };
  for (const uint64_t pointer : c.pointers) add(pointer, 8);
  for (const uint32_t number : c.numbers) add(number, 4);
  add(0, 8), add(0, 8);
  return out;
}

void count(benchmark::State& state, const Case& c) {
  const auto module = parse_ptx(text_of(c));
  const KernelLaunch launch = launch_of(c);
  for (auto _ : state) {
    const KernelCounts out = count_kernel(*module, c.kernel, launch);
    const double counted = c.checked != nullptr ? out.*c.checked : out.tensor_flops[static_cast<size_t>(Precision::fp16)];
    if (!out.limit.empty() || counted != c.expected) state.SkipWithError("a wrong count");
  }
}

void read(benchmark::State& state, const Case& c) {
  const std::string text = text_of(c);
  for (auto _ : state) {
    if (parse_ptx(text) == nullptr) state.SkipWithError("no kernel");
  }
}

Case copy() { return {"copy", "copy", {977, 1, 1}, 128, {kA, kB}, {1'000'003}, &KernelCounts::unique_load_bytes, 4e6 + 12}; }
Case softmax() {
  return {"row_softmax", "row_softmax", {8192, 1, 1}, 128, {kA, kB}, {500}, &KernelCounts::unique_load_bytes, 8192.0 * 500 * 4};
}
Case matmul() {
  return {"matmul", "matmul", {32, 25, 1}, 64, {kA, kB, kC}, {1000, 777, 512, 512, 784, 784}, nullptr, 2.0 * 1024 * 800 * 512};
}
Case matmul_of_warpgroups() {
  return {"matmul_wgmma", "matmul", {16, 8, 1}, 128, {kA, kB, kC}, {1024, 512, 4096, 4096, 512, 512}, nullptr, 2.0 * 1024 * 512 * 4096};
}
// Causal: its blocks are not alike.
Case attention() {
  const uint32_t tokens = 8192, heads = 32, tiles = tokens / 128;
  const double pairs = heads * 128.0 * 128 * tiles * (tiles + 1) / 2;
  return {"attention", "attention", {tiles, heads, 1}, 128, {kA, kB, kC, kD}, {0x3f800000, tokens}, nullptr, 4 * 64 * pairs};
}

BENCHMARK_CAPTURE(count, copy, copy())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(count, softmax, softmax())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(count, matmul, matmul())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(count, matmul_of_warpgroups, matmul_of_warpgroups())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(count, attention, attention())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(read, copy, copy())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(read, attention, attention())->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace gpucast

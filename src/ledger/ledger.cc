#include "gpucast/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

// Cards on which the amounts beside the allocator were measured (docs/reference/ledger.md says how).
struct Measured {
  const char* id;
  int64_t context_low_mib, context_mib, context_high_mib;
  int64_t kernels_low_mib, kernels_mib, kernels_high_mib;
};
constexpr Measured kMeasured[] = {
    {"rtx3060", 112, 112, 154, 18, 18, 64},
    {"rtx4060", 104, 116, 134, 14, 14, 64},
};

std::optional<Measured> measured(const Gpu& gpu) {
  for (const Measured& row : kMeasured) {
    if (gpu.id == row.id) return row;
  }
  return std::nullopt;
}

// The driver takes device memory in steps of 2 MiB.
int64_t in_steps(double mib) { return static_cast<int64_t>(std::ceil(mib / 2)) * 2 * kMiB; }

// A context keeps a stack for every thread that can be resident at once, and it grows in proportion. Fitted to bare contexts
// of an RTX 3060, an RTX 3090, a Titan V and an RTX 6000 Ada; all four lie within 3 % of it, and those of A100 and H100, found later,
// within 4 %.
constexpr double kContextBaseMib = 36, kContextPerStackMib = 1.82, kStackKibPerThread = 1;
constexpr double kContextLeast = 0.85, kContextMost = 1.15;
// What a process with PyTorch holds beyond its context grows with the stacks, too. Fitted to published out-of-memory messages of 16 cards
// by eval/memory/fit_beside.py, as is how far single processes are off.
constexpr double kKernelsBaseMib = 10.4, kKernelsPerStackMib = 0.351, kKernelsLeast = 0.5, kKernelsMoreMib = 71;

double stacks_mib(const Gpu& gpu) { return gpu.multiprocessors * gpu.max_threads_per_multiprocessor * kStackKibPerThread / 1024; }

LedgerLine context_line(const Gpu& gpu, int cuda_major) {
  LedgerLine line;
  line.what = "CUDA context";
  if (const auto row = measured(gpu)) {
    line.low_bytes = row->context_low_mib * kMiB;
    line.expected_bytes = row->context_mib * kMiB;
    line.high_bytes = row->context_high_mib * kMiB;
    line.source = "measured: device memory used and out-of-memory verdicts of 233 training runs (xMem artifact, CUDA 12.4)";
    if (cuda_major != 12) {
      line.high_bytes += 32 * kMiB;
      line.source += "; wider, since not measured with this CUDA release";
    }
    return line;
  }
  const double expected_mib = kContextBaseMib + kContextPerStackMib * stacks_mib(gpu);
  line.expected_bytes = in_steps(expected_mib);
  line.low_bytes = in_steps(kContextLeast * expected_mib);
  line.high_bytes = in_steps(kContextMost * expected_mib);
  line.source =
      fmt::format("estimate: {} MiB + {} x the resident threads' stacks ({} SMs x {} threads x 1 KiB), fitted to four measured cards",
                  kContextBaseMib, kContextPerStackMib, gpu.multiprocessors, gpu.max_threads_per_multiprocessor);
  return line;
}

LedgerLine kernels_line(const Gpu& gpu, int cuda_major) {
  LedgerLine line;
  line.what = "kernels loaded lazily and library handles";
  if (const auto row = measured(gpu)) {
    line.low_bytes = row->kernels_low_mib * kMiB;
    line.expected_bytes = row->kernels_mib * kMiB;
    line.high_bytes = row->kernels_high_mib * kMiB;
    line.source = "measured: growth outside the allocator in transformer runs (xMem artifact, CUDA 12.4); more with cuDNN";
    if (cuda_major != 12) line.high_bytes += 32 * kMiB;
    return line;
  }
  const double expected_mib = kKernelsBaseMib + kKernelsPerStackMib * stacks_mib(gpu);
  line.expected_bytes = in_steps(expected_mib);
  line.low_bytes = in_steps(kKernelsLeast * expected_mib);
  line.high_bytes = in_steps(expected_mib + kKernelsMoreMib);
  line.source = fmt::format(
      "estimate: {} MiB + {} x the resident threads' stacks, fitted to the memory of processes on 16 cards outside PyTorch's allocator",
      kKernelsBaseMib, kKernelsPerStackMib);
  return line;
}

}  // namespace

int cuda_major_of(const std::string& cuda_version) {
  int major = 0;
  std::from_chars(cuda_version.data(), cuda_version.data() + cuda_version.size(), major);
  return major;
}

std::vector<LedgerLine> device_ledger(const Gpu& gpu, int cuda_major) {
  return {context_line(gpu, cuda_major), kernels_line(gpu, cuda_major)};
}

LedgerLine ledger_total(const std::vector<LedgerLine>& lines) {
  LedgerLine total;
  total.what = "total";
  for (const LedgerLine& line : lines) {
    total.low_bytes += line.low_bytes;
    total.expected_bytes += line.expected_bytes;
    total.high_bytes += line.high_bytes;
  }
  total.source = "sum of the lines";
  return total;
}

uint64_t usable_capacity_bytes(const Gpu& gpu, int cuda_major) {
  const auto ledger_bytes = static_cast<uint64_t>(ledger_total(device_ledger(gpu, cuda_major)).expected_bytes);
  return gpu.total_memory_bytes > ledger_bytes ? gpu.total_memory_bytes - ledger_bytes : 0;
}

}  // namespace gpucast

#include "gpucast/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/base/bytes.h"
#include "src/ledger/ledger_constants.h"

namespace gpucast {
namespace {

const MeasuredLedger* measured(const Gpu& gpu, const LedgerConstants& constants) {
  const auto row = constants.measured.find(measured_id(gpu));
  return row == constants.measured.end() ? nullptr : &row->second;
}

int64_t in_bytes(double mib) { return static_cast<int64_t>(mib * kMiB); }

// The driver uses device memory in multiples of 2 MiB.
int64_t in_steps(double mib) { return static_cast<int64_t>(std::ceil(mib / 2)) * 2 * kMiB; }

double stacks_mib(const Gpu& gpu, const LedgerConstants& constants) {
  return gpu.multiprocessors * gpu.max_threads_per_multiprocessor * constants.stack_kib_per_thread / 1024;
}

LedgerLine context_line(const Gpu& gpu, int cuda_major, const LedgerConstants& constants) {
  LedgerLine line;
  line.what = "CUDA context";
  if (const MeasuredLedger* const row = measured(gpu, constants)) {
    line.low_bytes = in_bytes(row->context_low_mib);
    line.expected_bytes = in_bytes(row->context_mib);
    line.high_bytes = in_bytes(row->context_high_mib);
    line.source = row->cuda_major == 12
                      ? "measured: device memory used and out-of-memory verdicts of 233 training runs (xMem artifact, CUDA 12.4)"
                      : "measured: a bare context on this card (CUDA 13.0)";
    if (cuda_major != row->cuda_major) {
      line.high_bytes += in_bytes(constants.other_release_mib);
      line.source += "; wider than usual, since not measured with this CUDA release";
    }
    return line;
  }
  const double expected_mib = constants.context_base_mib + constants.context_per_stack_mib * stacks_mib(gpu, constants);
  line.expected_bytes = in_steps(expected_mib);
  line.low_bytes = in_steps(constants.context_least * expected_mib);
  line.high_bytes = in_steps(constants.context_most * expected_mib);
  line.source =
      fmt::format("estimate: {} MiB + {} x the resident threads' stacks ({} SMs x {} threads x 1 KiB), fitted to four measured cards",
                  constants.context_base_mib, constants.context_per_stack_mib, gpu.multiprocessors, gpu.max_threads_per_multiprocessor);
  return line;
}

LedgerLine kernels_line(const Gpu& gpu, int cuda_major, const LedgerConstants& constants) {
  LedgerLine line;
  line.what = "kernels loaded lazily and library handles";
  if (const MeasuredLedger* const row = measured(gpu, constants)) {
    line.low_bytes = in_bytes(row->kernels_low_mib);
    line.expected_bytes = in_bytes(row->kernels_mib);
    line.high_bytes = in_bytes(row->kernels_high_mib);
    line.source = row->cuda_major == 12
                      ? "measured: growth outside the allocator in transformer runs (xMem artifact, CUDA 12.4); more with cuDNN"
                      : "measured: five jobs on this card (CUDA 13.0), and published out-of-memory messages (CUDA 12)";
    if (cuda_major != row->cuda_major) line.high_bytes += in_bytes(constants.other_release_mib);
    return line;
  }
  const double expected_mib = constants.kernels_base_mib + constants.kernels_per_stack_mib * stacks_mib(gpu, constants);
  line.expected_bytes = in_steps(expected_mib);
  line.low_bytes = in_steps(constants.kernels_least * expected_mib);
  line.high_bytes = in_steps(expected_mib + constants.kernels_more_mib);
  line.source = fmt::format(
      "estimate: {} MiB + {} x the resident threads' stacks, fitted to the memory of processes on 16 cards outside PyTorch's allocator",
      constants.kernels_base_mib, constants.kernels_per_stack_mib);
  return line;
}

}  // namespace

int cuda_major_of(const std::string& cuda_version) {
  int major = 0;
  std::from_chars(cuda_version.data(), cuda_version.data() + cuda_version.size(), major);
  return major;
}

std::vector<LedgerLine> device_ledger(const Gpu& gpu, int cuda_major, const LedgerConstants& constants) {
  return {context_line(gpu, cuda_major, constants), kernels_line(gpu, cuda_major, constants)};
}

std::vector<LedgerLine> device_ledger(const Gpu& gpu, int cuda_major) { return device_ledger(gpu, cuda_major, ledger_constants()); }

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

// Measures the host's cost of a launch, with a clock and with the log. PyTorch's part of a launch is not included.
#include <benchmark/benchmark.h>

#include <stdexcept>
#include <string>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {
namespace {

constexpr const char* kName = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctorOnSelf_addIfEESt5arrayIPcLm2EEEEviT0_T1_";

void launch(unsigned blocks) {
  const unsigned grid[3] = {blocks, 1, 1}, block[3] = {128, 1, 1};
  log_kernel(kName, grid, block, 0, 0);
}

void BM_LaunchWithClock(benchmark::State& state) {
  start_clock(ClockMode::warp, [](const std::string&) { return std::string("3000 0 0.9\n"); });
  unsigned i = 0;
  const uint64_t begin = event_create(0), end = event_create(0);
  event_record(begin, 0);
  for (auto _ : state) launch(++i % 100);
  event_record(end, 0);
  device_synchronize();
  float elapsed_ms = 0;
  event_elapsed(begin, end, &elapsed_ms);
  if (elapsed_ms * 1e6 < 3000.0 * static_cast<double>(state.iterations())) throw std::runtime_error("work is missing");
  stop_clock();
}
BENCHMARK(BM_LaunchWithClock);

void BM_LaunchWithLog(benchmark::State& state) {
  unsigned i = 0;
  for (auto _ : state) launch(++i % 100);
}
BENCHMARK(BM_LaunchWithLog);

}  // namespace
}  // namespace gpucast::vgpu

#include "src/pack/interference.h"

#include <algorithm>

namespace gpucast::pack {
namespace {

// What the job's own limits make of it.
double own_slowdown(const KernelMix& mix) {
  const double compute = std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor}) / mix.compute_limit;
  const double memory = std::max(mix.dram, mix.l2) / mix.memory_limit;
  return std::max({1.0, mix.compute_limit < 1 ? compute : 0.0, mix.memory_limit < 1 ? memory : 0.0});
}

}  // namespace

std::vector<Slowdown> slowdowns(std::span<const KernelMix> mixes, const Gpu& /*gpu*/, SharingMode mode) {
  KernelMix sum;
  for (const KernelMix& mix : mixes) {
    sum.busy += mix.busy;
    sum.warps += mix.warps;
    sum.compute += mix.compute;
    sum.tensor += mix.tensor;
    sum.dram += mix.dram;
    sum.l2 += mix.l2;
    sum.pcie += mix.pcie;
  }
  // Launches are not among them: each process has a host thread of its own.
  const double shared =
      mode == SharingMode::timeslice ? sum.busy : std::max({sum.warps, sum.compute, sum.tensor, sum.dram, sum.l2, sum.pcie});
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const KernelMix& mix : mixes) {
    const double own = own_slowdown(mix);
    if (mode == SharingMode::mig || mixes.size() == 1) {
      out.push_back({own, own, own});
      continue;
    }
    const double expected = std::max({1.0, own, shared});
    // Half of it, where gaps fit into one another; all kernels one after another, where each waits for the others'.
    out.push_back({1 + (expected - 1) / 2, expected, std::max(expected, own + sum.busy - mix.busy)});
  }
  return out;
}

}  // namespace gpucast::pack

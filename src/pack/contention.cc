#include "src/pack/contention.h"

#include <algorithm>

#include "src/pack/interference.h"

namespace gpucast::pack {
namespace {
constexpr double kFelt = 1.05;
}  // namespace

const char* contended_name(Contended part) {
  switch (part) {
    case Contended::nothing:
      return "nothing";
    case Contended::multiprocessors:
      return "multiprocessors";
    case Contended::bandwidth:
      return "bandwidth";
    case Contended::host:
      return "host";
    case Contended::count_:
      break;
  }
  return "";
}

Contention contention(std::span<const KernelMix> mixes, const Gpu& gpu, SharingMode mode, const PackConstants& constants) {
  double multiprocessors = 0, dram = 0, l2 = 0, pcie = 0;
  for (const KernelMix& mix : mixes) {
    // In a time slice a job has all multiprocessors, even if its kernels need few.
    multiprocessors += mode == SharingMode::timeslice ? mix.busy : std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor});
    dram += mix.dram;
    l2 += mix.l2;
    pcie += mix.pcie;
  }
  const auto slower = slowdowns(mixes, gpu, mode, constants);
  if (std::all_of(slower.begin(), slower.end(), [](const Slowdown& one) { return one.expected < kFelt; }))
    return {Contended::nothing, multiprocessors};
  const double bandwidth = std::max(dram, l2), most = std::max({multiprocessors, bandwidth, pcie});
  if (most == pcie) return {Contended::host, pcie};
  return most == bandwidth && bandwidth > multiprocessors ? Contention{Contended::bandwidth, bandwidth}
                                                          : Contention{Contended::multiprocessors, multiprocessors};
}

}  // namespace gpucast::pack

// How jobs share a card.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpucast::pack {

enum class SharingMode : uint8_t {
  timeslice,   // one process at a time, in turns: a card's default
  mps,         // kernels of several processes at once, without limits
  mps_limits,  // the same, each process limited to a share of the multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)
  mig,         // slices with their own multiprocessors, memory and bandwidth
  count_
};
const char* sharing_mode_name(SharingMode mode);       // as on the command line: "timeslice", "mps", "mps-limits", "mig"
SharingMode find_sharing_mode(std::string_view name);  // throws Error

// Most processes on one card: MPS's limit since Volta (NVIDIA's MPS documentation). It is used for time slices, too.
inline constexpr int kMostSharers = 48;

}  // namespace gpucast::pack

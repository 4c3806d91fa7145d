// How jobs share a card.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpucast::pack {

enum class SharingMode : uint8_t {
  timeslice,   // one process at a time, in turns: what a card does by itself
  mps,         // kernels of several processes at once, without limits
  mps_limits,  // same, each process on at most a share of the multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)
  mig,         // slices of their own multiprocessors, memory and bandwidth
  count_
};
const char* sharing_mode_name(SharingMode mode);     // as on the command line: "timeslice", "mps", "mps-limits", "mig"
SharingMode sharing_mode_of(std::string_view name);  // throws Error

// Processes that may use one card at once: MPS's limit since Volta, which also bounds the turns of time slicing here.
inline constexpr int kMostSharers = 48;

}  // namespace gpucast::pack

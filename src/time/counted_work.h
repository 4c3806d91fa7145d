// What a launch does, as counted from its kernel's code (src/kernels). All sums are over the whole launch.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace gpucast {

struct CountedWork {
  double blocks = 0;  // 0: the work was not counted
  int block_threads = 0;
  int registers = 0;         // of a thread; 0: not known
  int64_t shared_bytes = 0;  // of a block
  // Bytes of device memory. A sector is 32 bytes that a warp's request touches, whatever cache answers it.
  double sectors = 0, async_bytes = 0;  // loads, stores and atomics; copies that pass no register
  double unique_bytes = 0;              // each byte once: loads, and stores once more
  double block_bytes = 0;               // each byte once for each block
  double shared_wavefronts = 0;
  double atomic_sectors = 0;                                                               // part of `sectors`
  std::array<double, 7> tensor_flops = {};                                                 // by Precision
  double fp32 = 0, fp16 = 0, fp64 = 0, integer = 0, special = 0, control = 0, memory = 0;  // instructions of warps
  // The longest warp, from start to end: what waits for what.
  double chain_loads = 0, chain_shared = 0, chain_barriers = 0, chain_instructions = 0;
  friend auto operator<=>(const CountedWork&, const CountedWork&) = default;
};

}  // namespace gpucast

// The device ledger: the card's memory outside PyTorch's allocator. Every line names its source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/gpu.h"

namespace gpucast {

// The shapes of one input whose size differs between steps, apart from its first dimension: "[8, 87]", "[8, 128]".
struct VaryingInput {
  std::string name, smallest, largest;
};

// An amount with its uncertainty: low <= expected <= high. Measured amounts have a narrow interval, estimates a wide one.
struct LedgerLine {
  std::string what;     // "CUDA context", "loaded kernels and library handles", ...
  std::string library;  // "" or the library it belongs to: "nccl"
  int64_t low_bytes = 0, expected_bytes = 0, high_bytes = 0;
  std::string source;  // "measured: ...", "estimate: ..."
};

// "13.0" -> 13; 0: not known.
int cuda_major_of(const std::string& cuda_version);

// The lines for every job on this card: the context, kernels loaded lazily, library handles. `cuda_major` 12 or 13 (0: unknown).
std::vector<LedgerLine> device_ledger(const Gpu& gpu, int cuda_major);

// The sum of the lines, as one line ("total").
LedgerLine ledger_total(const std::vector<LedgerLine>& lines);

// The memory of this card that the allocators can have: total memory minus the expected ledger.
uint64_t usable_capacity_bytes(const Gpu& gpu, int cuda_major);

}  // namespace gpucast

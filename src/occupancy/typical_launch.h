// The launch that a library call most likely is. cuBLAS, cuDNN and NCCL choose among their kernels on the card, by rules that they do not
// tell: what stands here are kernels that do the same, as profilers saw them. Reports mark them.
#pragma once

#include <optional>

#include "src/occupancy/occupancy.h"
#include "src/time/card_rates.h"
#include "src/time/operation.h"

namespace gpucast {

struct TypicalLaunch {
  Launch launch;
  KernelResources kernel;
  const char* like = "";  // the kernel whose figures these are
};

// Unset: a kind of operation that no library is known to do.
std::optional<TypicalLaunch> typical_launch(const Operation& operation, const CardRates& rates, const OccupancyCard& card);

}  // namespace gpucast

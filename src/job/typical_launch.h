// The most likely launch of a library call. cuBLAS, cuDNN and NCCL choose among their kernels on the card, by rules that are not published.
// This table has kernels for the same work, as profilers recorded them. Reports mark these figures.
#pragma once

#include <optional>

#include "src/occupancy/occupancy.h"
#include "src/time/card_rates.h"
#include "src/time/operation.h"

namespace gpucast {

struct TypicalLaunch {
  Launch launch;
  KernelResources kernel;
  const char* like = "";  // the kernel that the figures come from
};

// Unset: no library is known to compute this kind of operation.
std::optional<TypicalLaunch> typical_launch(const Operation& operation, const CardRates& rates, const OccupancyCard& card);

}  // namespace gpucast

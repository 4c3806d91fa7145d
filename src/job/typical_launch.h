// The most likely launches of a library call. cuBLAS, cuDNN and NCCL choose among their kernels on the card, by rules that are not
// published. This table has kernels for the same work, as profilers recorded them. Reports mark these figures.
#pragma once

#include <vector>

#include "src/occupancy/occupancy.h"
#include "src/time/card_rates.h"
#include "src/time/operation.h"

namespace gpucast {

struct TypicalLaunch {
  Launch launch;
  KernelResources kernel;
  const char* like = "";  // the kernel that the figures come from
  double warps = 1;       // the part of a block's warps that do not end at once
  double time_share = 1;  // of the call's time
};

// Their time shares add up to 1. Empty: no library is known to compute this kind of operation.
std::vector<TypicalLaunch> typical_launches(const Operation& operation, const CardRates& rates, const OccupancyCard& card);

}  // namespace gpucast

// For tests: small kernels by a seed, with loops, branches, predicates and accesses of all sizes.
#pragma once

#include <cstdint>
#include <string>

#include "src/kernels/kernel_counts.h"

namespace gpucast {

struct RandomKernel {
  std::string text;  // the entry is `k`; its statements lie one on a line
  KernelLaunch launch;
};
RandomKernel random_kernel(uint32_t seed);
// What the buffer of indices holds: any number, the same for each address and seed.
KnownValue values_of_seed(uint32_t seed);

}  // namespace gpucast

// For tests: small kernels by a seed, with loops, branches, predicates and accesses of all sizes.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "src/kernels/kernel_counts.h"

namespace gpucast {

struct RandomKernel {
  std::string text;  // the entry is `k`; its statements lie one on a line
  KernelLaunch launch;
};
RandomKernel random_kernel(uint32_t seed);
// tests/ptx/NAME.ptx
std::string ptx_file(const std::string& name);
// Its text cut, in every third round, and with `round` letters changed.
std::string damaged(std::string text, int round, std::mt19937* random);
// What the buffer of indices holds: any number, the same for each address and seed.
KnownValue values_of_seed(uint32_t seed);

}  // namespace gpucast

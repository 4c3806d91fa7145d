// Which stores to device memory write whole numbers that can be known.
#pragma once

#include <vector>

#include "src/kernels/ptx_code.h"

namespace gpucast::ptx {

// The registers that such stores write. Fills kernel->stored_numbers. Call before registers are renumbered.
std::vector<Register> find_numbers(Kernel* kernel);

}  // namespace gpucast::ptx

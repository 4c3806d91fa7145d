// The part of a kernel with loops that decides the whole numbers that its warps give each other through shared memory. All warps run it
// before they are counted; it is short, because loops that only compute are no part of it.
#pragma once

#include <vector>

#include "src/kernels/ptx_code.h"

namespace gpucast::ptx {

// The registers of that part; none: no such number decides an address or a branch. Marks its instructions (Instruction::shares).
// `successors`: of each block. Call when it is known what is relevant, and before registers are renumbered.
std::vector<Register> find_shared_numbers(Kernel* kernel, const std::vector<std::vector<uint32_t>>& successors);

}  // namespace gpucast::ptx

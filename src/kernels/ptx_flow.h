// Basic blocks, where diverged lanes meet again, and which registers have to be computed.
#pragma once

#include "src/kernels/ptx_code.h"

namespace gpucast::ptx {

enum class Follow : uint8_t {
  addresses,  // values that decide an address, a branch or a count
  numbers,    // whole numbers that are stored, too
};

// Fills blocks, block_of, relevant; turns the targets of branches from instructions into blocks, and renumbers registers: those that decide
// an address, a branch or a count first.
void find_flow(Kernel* kernel, Follow follow);

}  // namespace gpucast::ptx

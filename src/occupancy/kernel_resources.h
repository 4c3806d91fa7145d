// The resources that a kernel uses on a multiprocessor, from its machine code.
#pragma once

#include <cstdint>

namespace gpucast {

struct KernelResources {
  int registers = 0;  // of a thread; 0: not known
  int static_shared_bytes = 0;
  int local_bytes = 0;      // of a thread: spilled registers and arrays
  int parameter_bytes = 0;  // 0: none, or not known
  int most_threads = 0;     // of a block (__launch_bounds__); 0: not limited
  // Bit i: parameter i (below 64) has 8 bytes and may be a pointer.
  uint64_t wide_parameters = 0;
};

}  // namespace gpucast

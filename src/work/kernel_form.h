// Which of its kernels PyTorch chose for an operator. The operator's arguments do not show it; the kernel's name and grid do.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "src/time/operation.h"

namespace gpucast {

struct FirstKernel {
  std::string_view name;  // as in the library, mangled
  std::array<uint32_t, 3> grid = {}, block = {};
};
// `operation`: from the operator's name and arguments.
void apply_kernel_form(const FirstKernel& kernel, Operation* operation);

// What is left of an operator after a copy or a fill between its kernels: its first kernel stands for the work of all.
Operation launch_of(const Operation& operation);

}  // namespace gpucast

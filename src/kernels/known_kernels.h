// Kernels whose work follows from their grid: CUB's sorts, scans and selections, and PyTorch's small kernels
// around these, whose number an operator's arguments do not show; and kernels of apex, which belong to no operator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "src/time/operation.h"

namespace gpucast {

// `name`: as in the library, mangled.
bool is_known_kernel(std::string_view name);
std::optional<Operation> known_kernel(std::string_view name, const std::array<uint32_t, 3>& grid, const std::array<uint32_t, 3>& block);

}  // namespace gpucast

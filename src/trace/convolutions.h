// Counts convolutions by kind, found from their shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/convolutions.h"

namespace gpucast {

// `x`: [N, C, ...], `w`: [K, C / groups, ...], as in cuDNN. Shapes that do not fit together count as unknown.
void add_convolution(const std::vector<int64_t>& x, const std::vector<int64_t>& w, bool float32, Convolutions* out);

}  // namespace gpucast

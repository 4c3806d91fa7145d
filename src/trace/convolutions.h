// Which kind a convolution is, by its shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/convolutions.h"

namespace gpucast {

// `x`: [N, C, ...], `w`: [K, C / groups, ...], as cuDNN has them. Shapes that do not go together are counted as unknown.
void add_convolution(const std::vector<int64_t>& x, const std::vector<int64_t>& w, bool float32, Convolutions* out);

}  // namespace gpucast

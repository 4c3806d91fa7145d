// Rounding of sizes to the steps in which kernels work.
#pragma once

#include <cmath>

namespace gpucast {

// The smallest multiple of `step` that is at least `value`.
inline double round_up(double value, double step) { return std::ceil(value / step) * step; }

}  // namespace gpucast

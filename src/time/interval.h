#pragma once

namespace gpucast {

// Measured over expected time, at the 5th and the 95th percentile.
struct Interval {
  double low = 0.7, high = 1.4;
};

}  // namespace gpucast

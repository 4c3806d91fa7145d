#pragma once

namespace gpucast {

struct TimeRange {
  double low_ns = 0, expected_ns = 0, high_ns = 0;  // 9 of 10 lie between low and high
};

}  // namespace gpucast

// Products of sizes from a file that may be damaged. No product exceeds kMostElements: no real size is that large, and nothing overflows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace gpucast {

inline constexpr int64_t kMostElements = int64_t{1} << 50;
inline constexpr int64_t kMostTensorBytes = int64_t{1} << 40;  // 1 TiB: sums over lists of tensors do not overflow either

// The product of numbers of 0 or more; negative numbers count as 0.
inline int64_t bounded_product(std::span<const int64_t> factors) {
  int64_t out = 1;
  for (const int64_t factor : factors) {
    const int64_t bounded = std::clamp<int64_t>(factor, 0, kMostElements);
    out = bounded != 0 && out > kMostElements / bounded ? kMostElements : out * bounded;
  }
  return out;
}
inline int64_t bounded_product(std::initializer_list<int64_t> factors) {
  return bounded_product(std::span(factors.begin(), factors.size()));
}
inline int64_t bounded_sum(int64_t a, int64_t b) { return std::min(a + b, kMostElements); }  // of two that are bounded

}  // namespace gpucast

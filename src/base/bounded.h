// Products of sizes that a damaged file may hold: none goes beyond kMostElements, where nothing real lies and nothing overflows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace gpucast {

inline constexpr int64_t kMostElements = int64_t{1} << 50;
inline constexpr int64_t kMostTensorBytes = int64_t{1} << 40;  // 1 TiB: sums over lists of tensors stay in range, too

// Of numbers of 0 or more; what is below 0 counts as 0.
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

}  // namespace gpucast

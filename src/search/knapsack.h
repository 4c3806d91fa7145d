// Which modules to recompute in backward so that enough memory is saved in the least time: a knapsack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpucast::search {

struct Recomputed {
  int64_t saved_bytes = 0;
  double cost_ns = 0;  // at least 0
};

// The cheapest set of items that saves at least `need_bytes`, as ascending indices. Exact. Unset: all together save less.
std::optional<std::vector<size_t>> cheapest_saving(const std::vector<Recomputed>& items, int64_t need_bytes);

}  // namespace gpucast::search

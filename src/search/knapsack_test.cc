#include "src/search/knapsack.h"

#include <gtest/gtest.h>

#include <random>

namespace gpucast::search {
namespace {

struct Cheapest {
  double cost_ns = -1;  // below 0: nothing saves enough
};

Cheapest by_brute_force(const std::vector<Recomputed>& items, int64_t need_bytes) {
  Cheapest best;
  for (uint32_t chosen = 0; chosen < (1U << items.size()); ++chosen) {
    int64_t saved_bytes = 0;
    double cost_ns = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      saved_bytes += items[i].saved_bytes;
      cost_ns += items[i].cost_ns;
    }
    if (saved_bytes >= need_bytes && (best.cost_ns < 0 || cost_ns < best.cost_ns)) best.cost_ns = cost_ns;
  }
  return best;
}

TEST(Knapsack, EqualsBruteForce) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<Recomputed> items(1 + random() % 11);
    int64_t all_bytes = 0;
    const bool alike = round % 3 == 0;  // as a transformer's blocks
    for (Recomputed& item : items) {
      item.saved_bytes = alike ? 100 : static_cast<int64_t>(random() % 200) - 10;
      item.cost_ns = alike ? 7 : static_cast<double>(random() % 50);
      all_bytes += std::max<int64_t>(item.saved_bytes, 0);
    }
    for (const int64_t need_bytes : {int64_t{0}, all_bytes / 3, 2 * all_bytes / 3, all_bytes, all_bytes + 1}) {
      const auto chosen = cheapest_saving(items, need_bytes);
      const Cheapest brute = by_brute_force(items, need_bytes);
      ASSERT_EQ(chosen.has_value(), brute.cost_ns >= 0);
      if (!chosen) continue;
      int64_t saved_bytes = 0;
      double cost_ns = 0;
      for (const size_t i : *chosen) {
        saved_bytes += items[i].saved_bytes;
        cost_ns += items[i].cost_ns;
      }
      EXPECT_GE(saved_bytes, need_bytes);
      EXPECT_DOUBLE_EQ(cost_ns, brute.cost_ns);
    }
  }
}

TEST(Knapsack, IsQuickForManyDifferentModules) {
  std::mt19937 random(6);
  std::vector<Recomputed> items(80);
  int64_t all_bytes = 0;
  for (Recomputed& item : items) {
    item = {static_cast<int64_t>(random() % 100'000'000), static_cast<double>(random() % 10'000'000)};
    all_bytes += item.saved_bytes;
  }
  EXPECT_TRUE(cheapest_saving(items, all_bytes / 2));
}

}  // namespace
}  // namespace gpucast::search

#include "src/search/knapsack.h"

#include <algorithm>
#include <limits>

namespace gpucast::search {
namespace {

// A choice among the first items. Its items are found along `before`.
struct ChosenItems {
  int64_t saved_bytes = 0;
  double cost_ns = 0;
  size_t before = SIZE_MAX;  // the choice without its last item
  size_t item = SIZE_MAX;
};

// Of choices ordered by cost, only those that save more than each cheaper one.
bool saves_more(const std::vector<ChosenItems>& all, const std::vector<size_t>& kept, const ChosenItems& next) {
  return kept.empty() || next.saved_bytes > all[kept.back()].saved_bytes;
}

}  // namespace

// Dynamic programming over the choices that no other one beats (Nemhauser and Ullmann): both lists of a round are ordered by cost.
std::optional<std::vector<size_t>> cheapest_saving(const std::vector<Recomputed>& items, int64_t need_bytes) {
  if (need_bytes <= 0) return std::vector<size_t>();
  std::vector<ChosenItems> all = {{}};
  std::vector<size_t> best = {0};  // places in `all`
  for (size_t item = 0; item < items.size(); ++item) {
    if (items[item].saved_bytes <= 0) continue;
    const size_t first_new = all.size();
    for (const size_t place : best) {
      const ChosenItems without = all[place];
      if (without.saved_bytes >= need_bytes) continue;
      all.push_back(
          {std::min(without.saved_bytes + items[item].saved_bytes, need_bytes), without.cost_ns + items[item].cost_ns, place, item});
    }
    std::vector<size_t> merged = best;
    for (size_t place = first_new; place < all.size(); ++place) merged.push_back(place);
    std::stable_sort(merged.begin(), merged.end(), [&](size_t a, size_t b) {
      return all[a].cost_ns != all[b].cost_ns ? all[a].cost_ns < all[b].cost_ns : all[a].saved_bytes > all[b].saved_bytes;
    });
    best.clear();
    for (const size_t place : merged) {
      if (saves_more(all, best, all[place])) best.push_back(place);
    }
  }
  if (all[best.back()].saved_bytes < need_bytes) return std::nullopt;
  std::vector<size_t> out;
  for (size_t place = best.back(); all[place].item != SIZE_MAX; place = all[place].before) out.push_back(all[place].item);
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace gpucast::search

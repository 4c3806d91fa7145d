// Finds the first of many entries with enough bytes and share, usually in logarithmic time: a card with enough free capacity or, with
// negated values, a waiting job that needs no more than a card has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpucast::pack {

struct Capacity {
  int64_t bytes = 0;
  int32_t share = 0;
  bool covers(const Capacity& need) const { return bytes >= need.bytes && share >= need.share; }
  bool operator==(const Capacity&) const = default;
};
inline Capacity negated(const Capacity& capacity) { return {-capacity.bytes, -capacity.share}; }

class FitTree {
 public:
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr Capacity kNothing = {INT64_MIN, INT32_MIN};

  explicit FitTree(size_t count = 0) { reset(count); }
  void reset(size_t count) {
    leaves_ = 1;
    while (leaves_ < count) leaves_ *= 2;
    nodes_.assign(2 * leaves_, kNothing);
  }
  void set(size_t index, Capacity capacity) {
    size_t i = leaves_ + index;
    nodes_[i] = capacity;
    while (i > 1) {
      i /= 2;
      const Capacity &left = nodes_[2 * i], &right = nodes_[2 * i + 1];
      const Capacity most = {std::max(left.bytes, right.bytes), std::max(left.share, right.share)};
      if (nodes_[i] == most) return;
      nodes_[i] = most;
    }
  }
  // The index of the first entry at or after `from` that covers `need`, or kNone. If `is_wanted(capacity)` is false, entries with at most
  // this capacity are skipped.
  template <class IsWanted>
  size_t find_first(const Capacity& need, size_t from, const IsWanted& is_wanted) const {
    if (from >= leaves_) return kNone;
    size_t i = from == 0 ? 1 : leaves_ + from;
    for (;;) {
      if (nodes_[i].covers(need) && is_wanted(nodes_[i])) {
        if (i >= leaves_) return i - leaves_;
        i *= 2;
        continue;
      }
      while ((i & 1) != 0) i /= 2;
      if (i == 0) return kNone;
      ++i;
    }
  }
  size_t find_first(const Capacity& need, size_t from = 0) const {
    return find_first(need, from, [](const Capacity&) { return true; });
  }

 private:
  size_t leaves_ = 1;
  std::vector<Capacity> nodes_;
};

}  // namespace gpucast::pack

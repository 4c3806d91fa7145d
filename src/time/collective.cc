#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"

namespace gpucast {

// An all-reduce, as NCCL documents it. In a ring each rank sends 2 (n - 1) / n of its bytes, in 2 (n - 1) steps. In a tree (there are two,
// each for half of the bytes) the bytes go up and down once, in 2 log2(n) steps. The tree's kernel starts faster and moves bytes more
// slowly.
Estimate collective_time(const Operation& operation, const CardRates& card) {
  const auto ranks = static_cast<double>(std::max<int64_t>(1, operation.collective.ranks));
  const double bytes = static_cast<double>(operation.collective.bytes);
  const double floor_ns = card.bytes[OperationKind::collective].floor_ns;
  if (ranks < 2) return {floor_ns + moving_ns(2 * bytes, 1, 1, card), Bound::memory};
  const double sent_ns = 1e9 * 2 * (ranks - 1) / ranks * bytes / card.peer_bytes_per_s;
  // The ring's protocol synchronises each step through memory; the tree's writes a flag with each number, which doubles the bytes.
  const double ring_ns = floor_ns + sent_ns + 2 * (ranks - 1) * card.collective.ring_hops * card.peer_hop_ns;
  const double tree_ns = card.collective.tree_floor * floor_ns + 2 * sent_ns + 2 * std::ceil(std::log2(ranks)) * card.peer_hop_ns;
  return {std::min(ring_ns, tree_ns), Bound::link};
}

}  // namespace gpucast

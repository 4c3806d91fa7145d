#include "src/time/nccl_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace gpucast {
namespace {

// By number of nodes: the place in ByNodes.
size_t nodes_place(double nodes) { return nodes <= 1 ? 0 : nodes <= 2 ? 1 : 2; }

double log2_whole(double number) { return std::floor(std::log2(std::max(1.0, number))); }

struct Tuner {
  const CollectiveShape& shape;
  const Route& route;
  const NetworkConstants& network;
  double bytes = 0;

  // Rings and trees of several nodes have the bandwidth of the slower of both; a tree of two nodes may use twice the network's.
  [[nodiscard]] double bus(double network_times) const {
    return route.nodes <= 1 ? route.bus_bytes_per_s : std::min(route.bus_bytes_per_s, network_times * route.network_bytes_per_s);
  }
  [[nodiscard]] double inside_ns(const TunerLine& line) const { return route.nvlink ? line.step.nvlink_ns : line.step.pci_ns; }
  [[nodiscard]] double ring_ns(NcclProtocol protocol) const;
  [[nodiscard]] double tree_ns(NcclProtocol protocol) const;
  [[nodiscard]] double nvls_ns(double network_ns) const;
  [[nodiscard]] double nvls_channel_bytes_per_s() const;
  [[nodiscard]] double estimate_ns(const NcclChoice& choice) const;
};

double Tuner::ring_ns(NcclProtocol protocol) const {
  const size_t nodes = nodes_place(route.nodes);
  const TunerLimits& limits = network.limits;
  const TunerFactors& factors = network.factors;
  double bandwidth = bus(1);
  if (protocol == NcclProtocol::ll) bandwidth = std::min(limits.ll_bytes_per_s[nodes], bandwidth * factors.ring_ll);
  if (protocol == NcclProtocol::ll128)
    bandwidth = std::min(bandwidth * factors.ring_ll128, route.graph_channels * limits.ring_ll128_bytes_per_s[nodes]);
  const double steps = ring_steps(shape.kind, route.ranks);
  const TunerLine& line = network.ring[static_cast<size_t>(protocol)];
  double inside = inside_ns(line), between = 0, between_steps = 0;
  if (route.nodes > 1) {
    inside = std::max(inside, factors.post_ns * (protocol == NcclProtocol::simple ? 3 : 1));
    between = route.ranks_per_node <= 1 ? network.tree[static_cast<size_t>(protocol)].step.network_ns : line.step.network_ns;
    between_steps = ring_steps(shape.kind, route.nodes);
  }
  double latency = line.start_ns + (steps - between_steps) * inside + between_steps * between;
  if (protocol == NcclProtocol::simple && route.nodes > 1 && shape.kind == CollectiveKind::all_reduce &&
      bytes / (2 * route.graph_channels * route.ranks) >= 64)
    latency *= factors.ring_plateau;
  const bool once = shape.kind == CollectiveKind::broadcast || shape.kind == CollectiveKind::reduce;
  return latency + 1e9 * bytes / (bandwidth * route.ranks / (once ? route.ranks : steps));
}

double Tuner::tree_ns(NcclProtocol protocol) const {
  const size_t nodes = nodes_place(route.nodes);
  const TunerLimits& limits = network.limits;
  const TunerFactors& factors = network.factors;
  double bandwidth = std::min(bus(route.nodes <= 2 ? 2 : 1) * factors.tree, route.graph_channels * limits.tree_bytes_per_s[nodes]);
  if (protocol == NcclProtocol::ll) bandwidth = std::min(bandwidth * factors.tree_ll, limits.ll_bytes_per_s[nodes]);
  if (protocol == NcclProtocol::ll128)
    bandwidth = std::min(bandwidth * (nodes == 0 ? factors.tree_ll128_one_node : factors.tree_ll128_nodes),
                         route.graph_channels * limits.tree_ll128_bytes_per_s[nodes]);
  const TunerLine& line = network.tree[static_cast<size_t>(protocol)];
  const auto size = static_cast<uint64_t>(bytes) >> 6;
  if (size > 0 && std::bit_width(size) <= 23) bandwidth *= line.correction[static_cast<size_t>(std::bit_width(size)) - 1];
  const double latency =
      line.start_ns + 2 * ((route.ranks_per_node - 1) * inside_ns(line) + log2_whole(route.nodes) * line.step.network_ns);
  return latency + 2e9 * bytes / bandwidth;
}

// One channel for each card of a node, which moves its own part twice.
double Tuner::nvls_channel_bytes_per_s() const {
  constexpr double kCounted = 0.8241;  // of the datasheet: NCCL counts 20.6 of a link's 25 GB/s
  return std::min(network.limits.nvls_most_bytes_per_s, kCounted * route.card_bytes_per_s / (route.ranks_per_node + 1));
}

double Tuner::nvls_ns(double network_ns) const {
  const double cards = route.ranks_per_node;
  double channel = nvls_channel_bytes_per_s() * network.limits.nvls_fraction * (cards - 1) / cards * 2;
  if (route.nodes > 1) {
    const double between = route.network_bytes_per_s / cards * (route.nodes <= 2 ? 2 : 1);
    channel = std::min({channel, between, network.limits.nvls_tree_bytes_per_s[nodes_place(route.nodes)]});
  }
  const double steps = ring_steps(shape.kind, route.ranks);
  return inside_ns(network.nvls) + network_ns + 1e9 * bytes / (cards * channel * route.ranks / steps);
}

double Tuner::estimate_ns(const NcclChoice& choice) const {
  switch (choice.algorithm) {
    case NcclAlgorithm::tree:
      return tree_ns(choice.protocol);
    case NcclAlgorithm::nvls:
      return nvls_ns(0);
    case NcclAlgorithm::nvls_tree:
      return nvls_ns(2 * log2_whole(route.nodes) * network.nvls_tree.step.network_ns);
    default:
      return ring_ns(choice.protocol);
  }
}

// The switch adds these, and no others.
bool is_added_by_switch(Precision precision) { return precision != Precision::int8 && precision != Precision::fp8; }

int64_t channels_of(const CollectiveShape& shape, NcclAlgorithm algorithm, NcclProtocol protocol, const Route& route,
                    const NcclSettings& settings) {
  int64_t most =
      algorithm == NcclAlgorithm::nvls || algorithm == NcclAlgorithm::nvls_tree ? route.path->nvls_channels : std::llround(route.channels);
  if (settings.most_channels > 0) most = std::min(most, settings.most_channels);
  most = std::max({most, settings.least_channels, int64_t{1}});
  if (algorithm == NcclAlgorithm::nvls || algorithm == NcclAlgorithm::nvls_tree) return most;
  // NCCL_..._MAX_NTHREADS threads, with NCCL_..._THREAD_THRESHOLD bytes each.
  const double thread_bytes = protocol == NcclProtocol::simple   ? 512 * 64
                              : protocol == NcclProtocol::ll128  ? 640 * 8
                              : algorithm == NcclAlgorithm::ring ? 512 * 8 * route.ranks
                                                                 : 512 * 8;
  return std::clamp(static_cast<int64_t>(static_cast<double>(shape.bytes) / thread_bytes), int64_t{1}, most);
}

}  // namespace

double ring_steps(CollectiveKind kind, double ranks) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (ranks - 1);
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return ranks - 1;
    default:
      return ranks;
  }
}

bool keeps_order(const Route& route, const CardRates& card) { return route.nodes <= 1 || route.hop_ns <= card.network.ordered_most_hop_ns; }

std::vector<NcclChoice> possible_choices(const CollectiveShape& shape, Precision precision, const Route& route, const CardRates& card) {
  const NcclSettings& settings = card.nccl;
  std::vector<NcclChoice> out;
  const auto add = [&](NcclAlgorithm algorithm, NcclProtocol protocol) {
    if (settings.allows(shape.kind, algorithm) && settings.allows(shape.kind, protocol))
      out.push_back({algorithm, protocol, channels_of(shape, algorithm, protocol, route, settings)});
  };
  const bool reduces_all = shape.kind == CollectiveKind::all_reduce;
  const bool ll128 = (route.nvlink && keeps_order(route, card)) || settings.forces_ll128[static_cast<size_t>(shape.kind)];
  for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
    if (protocol == NcclProtocol::ll128 && !ll128) continue;
    if (reduces_all) add(NcclAlgorithm::tree, protocol);
    add(NcclAlgorithm::ring, protocol);
  }
  if (reduces_all && route.multicast && route.ranks_per_node > 2 && is_added_by_switch(precision))
    add(route.nodes <= 1 ? NcclAlgorithm::nvls : NcclAlgorithm::nvls_tree, NcclProtocol::simple);
  // NCCL ends with an error where its settings leave nothing.
  if (out.empty())
    out.push_back(
        {NcclAlgorithm::ring, NcclProtocol::simple, channels_of(shape, NcclAlgorithm::ring, NcclProtocol::simple, route, settings)});
  return out;
}

NcclChoice choose_nccl(const CollectiveShape& shape, Precision precision, const Route& route, const CardRates& card) {
  const Tuner tuner{shape, route, card.network, static_cast<double>(shape.bytes)};
  NcclChoice best;
  double best_ns = std::numeric_limits<double>::infinity();
  for (const NcclChoice& choice : possible_choices(shape, precision, route, card)) {
    const double ns = tuner.estimate_ns(choice);
    if (ns >= best_ns) continue;
    best = choice;
    best_ns = ns;
  }
  return best;
}

}  // namespace gpucast

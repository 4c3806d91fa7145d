#include "src/time/collective.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/time/kinds.h"
#include "src/time/nccl_choice.h"

namespace gpucast {
namespace {

constexpr double kLlPassBytes = 4096;                                    // of 512 threads, 8 bytes each
constexpr double kStepBytes = 512 << 10;                                 // of a channel's buffer, in Simple
constexpr double kPeerLlBytes = 16 << 10;                                // messages up to this size use LL
constexpr double kLeastPartBytes = 64 << 10, kMostPartBytes = 16 << 20;  // of a message, for each of its channels

double power_mean(double a, double b, double power) { return std::pow(std::pow(a, power) + std::pow(b, power), 1 / power); }

struct Collective {
  const CollectiveShape& shape;
  Precision precision;
  const CardRates& card;
  Route route;
  double bytes = 0;

  Collective(const Operation& operation, const CardRates& rates)
      : shape(operation.collective),
        precision(operation.precision),
        card(rates),
        route(route_of(operation.collective, rates)),
        bytes(static_cast<double>(operation.collective.bytes)) {}

  [[nodiscard]] const PathConstants& path() const { return *route.path; }
  [[nodiscard]] const KernelConstants& kernel() const { return card.network.kernel; }
  // The work of a rank on its own chunk, in steps of a ring.
  [[nodiscard]] double extra(double all_reduce, double all_gather, double reduce_scatter) const {
    const double steps = shape.kind == CollectiveKind::all_reduce       ? all_reduce
                         : shape.kind == CollectiveKind::all_gather     ? all_gather
                         : shape.kind == CollectiveKind::reduce_scatter ? reduce_scatter
                                                                        : 0;
    return path().own_work * steps;
  }
  [[nodiscard]] double reducing(double int8) const {
    const bool adds = shape.kind == CollectiveKind::all_reduce || shape.kind == CollectiveKind::reduce_scatter;
    return adds && precision == Precision::int8 ? int8 : 1;
  }
  // A channel's part of the slower of a rate within the node and the network's.
  [[nodiscard]] double channel_rate(double inside_bytes_per_s, double of_network) const {
    const double rate = route.nodes <= 1 ? inside_bytes_per_s : std::min(inside_bytes_per_s, of_network * route.network_bytes_per_s);
    return rate / route.channels;
  }
  [[nodiscard]] double ring_ns(const NcclChoice& choice) const;
  [[nodiscard]] double pipeline_ns(const NcclChoice& choice) const;
  [[nodiscard]] double tree_ns(const NcclChoice& choice) const;
  [[nodiscard]] double nvls_ns() const;
  // Of a ring, in LL.
  [[nodiscard]] double ll_bytes_per_s() const {
    const ByNodes& limits = card.network.limits.ll_bytes_per_s;
    const double inside = path().ll_fraction * std::min(limits[0], route.bus_bytes_per_s * card.network.factors.ring_ll);
    return route.nodes <= 1 ? inside : std::min(inside, limits[route.nodes <= 2 ? 1 : 2]);
  }
};

// Each rank passes on a chunk in each step.
double Collective::ring_ns(const NcclChoice& choice) const {
  const PathConstants& p = path();
  const KernelConstants& k = kernel();
  const double steps = ring_steps(shape.kind, route.ranks);
  const double between = route.nodes <= 1 ? 0 : ring_steps(shape.kind, route.nodes);
  const double channels = static_cast<double>(choice.channels), chunk = bytes / route.ranks / channels;
  if (choice.protocol == NcclProtocol::ll) {
    const double rate = channel_rate(ll_bytes_per_s(), card.network.factors.ring_ll);
    const double fill_ns =
        p.ll_channels_ns * (1 - 1 / channels) + steps * p.ll_fill_ns * std::pow(std::min(1.0, chunk / kLlPassBytes), k.ll_fill_power);
    const double more_passes = std::max(0.0, std::ceil(chunk / kLlPassBytes) - 1);
    const double own = extra(k.ll_extra_all_reduce, k.ll_extra_all_gather, k.ll_extra_reduce_scatter);
    return p.ll_start_ns + (steps - between) * p.ll_step_ns + between * route.hop_ns +
           reducing(k.ll_int8) * (fill_ns + (steps + own) * more_passes * 1e9 * kLlPassBytes / rate);
  }
  if (choice.protocol == NcclProtocol::ll128) {
    const double rate = channel_rate(p.ll128_fraction * route.bus_bytes_per_s, card.network.factors.ring_ll128);
    return p.ll128_start_ns + (steps - between) * p.ll128_step_ns + between * route.hop_ns + steps * 1e9 * chunk / rate;
  }
  const double rate = channel_rate(p.simple_fraction * route.bus_bytes_per_s, 1);
  const double slice_ns = reducing(k.simple_int8) * 1e9 * chunk / 2 / rate, busy_ns = slice_ns + p.simple_slice_ns;
  const auto step_ns = [&](double wait_ns) { return busy_ns + power_mean(busy_ns, wait_ns, k.simple_overlap); };
  const double own = extra(k.simple_extra_all_reduce, k.simple_extra_all_gather, k.simple_extra_reduce_scatter);
  return p.simple_start_ns + (steps - between) * step_ns(p.simple_wait_ns) + between * step_ns(card.network.simple_hops * route.hop_ns) +
         own * 2 * slice_ns;
}

// broadcast, reduce: chunks follow one another through all ranks.
double Collective::pipeline_ns(const NcclChoice& choice) const {
  const PathConstants& p = path();
  const double between = route.nodes - 1, steps = route.ranks - 1 - between, of_channel = bytes / static_cast<double>(choice.channels);
  if (choice.protocol != NcclProtocol::simple) {
    const bool ll = choice.protocol == NcclProtocol::ll;
    const double inside = ll ? ll_bytes_per_s() : p.ll128_fraction * route.bus_bytes_per_s;
    const double rate = channel_rate(inside, ll ? card.network.factors.ring_ll : card.network.factors.ring_ll128);
    return (ll ? p.ll_start_ns : p.ll128_start_ns) + steps * (ll ? p.ll_step_ns : p.ll128_step_ns) + between * route.hop_ns +
           1e9 * of_channel / rate;
  }
  const double rate = channel_rate(p.simple_fraction * route.bus_bytes_per_s, 1);
  const double chunk_ns = 1e9 * std::min(of_channel, kStepBytes) / rate;
  return p.simple_start_ns + steps * (p.simple_wait_ns + chunk_ns) + between * (card.network.simple_hops * route.hop_ns + chunk_ns) +
         1e9 * of_channel / rate;
}

// Up a chain of the node's ranks and a tree of nodes, and down again. A node of a tree of more than two sends and receives the bytes twice.
double Collective::tree_ns(const NcclChoice& choice) const {
  const PathConstants& p = path();
  const TunerFactors& f = card.network.factors;
  const double levels = std::floor(std::log2(route.nodes)), chain = route.ranks_per_node - 1;
  const double network = route.nodes <= 2 ? 1 : 0.5;
  const auto rate = [&](double inside, double of_network) {
    return std::min(inside / 2, route.nodes <= 1 ? inside : of_network * network * route.network_bytes_per_s);
  };
  if (choice.protocol != NcclProtocol::simple) {
    const bool ll = choice.protocol == NcclProtocol::ll;
    const double reached = ll ? rate(ll_bytes_per_s(), f.ring_ll) : rate(p.ll128_fraction * route.bus_bytes_per_s, f.ring_ll128);
    return (ll ? p.ll_start_ns : p.ll128_start_ns) + 2 * (chain * (ll ? p.ll_step_ns : p.ll128_step_ns) + levels * route.hop_ns) +
           1e9 * bytes / reached;
  }
  const double reached = rate(f.tree * p.simple_fraction * route.bus_bytes_per_s, 1);
  const double chunk = std::min(bytes / static_cast<double>(choice.channels), kStepBytes);
  const double chunk_ns = 1e9 * chunk / (p.simple_fraction * route.bus_bytes_per_s / route.channels);
  return p.simple_start_ns +
         2 * (chain * (p.simple_wait_ns + kernel().tree_fill * chunk_ns) + levels * card.network.simple_hops * route.hop_ns) +
         1e9 * bytes / reached;
}

// The switch adds and copies: a part of each chunk at each card. Large collectives have larger chunks (calcCollChunking() of NCCL).
double nvls_chunk_bytes(double bytes, double at_once, double nodes) {
  const bool tree = nodes > 1;
  double chunk = 128 << 10;
  if (bytes < (tree ? 4 : 64) * at_once * chunk) chunk = 64 << 10;
  if (bytes < (tree ? 1 : 8) * at_once * chunk) chunk = 32 << 10;
  if (!tree && bytes < 2 * at_once * chunk) chunk = 16 << 10;
  return chunk;
}

double Collective::nvls_ns() const {
  const PathConstants& p = path();
  const double at_once = static_cast<double>(p.nvls_channels) * route.ranks_per_node;
  const double loop_bytes = at_once * nvls_chunk_bytes(bytes, at_once, route.nodes);
  const double inside = p.nvls_fraction * route.card_bytes_per_s * route.ranks_per_node / (route.ranks_per_node + 1);
  double rate = inside, hops_ns = 0;  // a loop's overhead overlaps with the network
  if (route.nodes > 1) {
    const double of_channels = card.network.limits.nvls_tree_bytes_per_s[route.nodes <= 2 ? 1 : 2] * route.ranks_per_node * route.ranks /
                               ring_steps(shape.kind, route.ranks);
    rate = std::min({inside, of_channels, route.network_bytes_per_s * (route.nodes <= 2 ? 1 : 0.5)});
    hops_ns = 2 * std::floor(std::log2(route.nodes)) * card.network.simple_hops * route.hop_ns;
  }
  const double loop_ns = p.nvls_loop_ns * route.ranks_per_node;
  return p.nvls_start_ns + hops_ns + 1e9 * kernel().nvls_fill * loop_bytes / inside +
         std::max(1.0, bytes / loop_bytes) * std::max(loop_ns + 1e9 * loop_bytes / inside, 1e9 * loop_bytes / rate);
}

// Messages of equal size that a rank exchanges with others, a number of channels for each.
struct Messages {
  double bytes = 0;     // of one
  double inside = 0;    // others in its node
  double between = 0;   // others in other nodes
  double channels = 1;  // of one
  double all_channels = 1;
};

Messages messages_of(const CollectiveShape& shape, const Route& route) {
  Messages out;
  const bool all = shape.kind != CollectiveKind::messages;
  out.bytes = static_cast<double>(shape.bytes) / (all ? route.ranks : 1);
  out.inside = all ? route.ranks_per_node - 1 : route.nodes > 1 ? 0 : 1;
  out.between = all ? route.ranks - route.ranks_per_node : route.nodes > 1 ? 1 : 0;
  out.all_channels = std::exp2(std::ceil(std::log2(static_cast<double>(route.path->channels))));
  const double most = route.nvlink ? out.all_channels : 2;
  double least = most;
  while (least * route.ranks > out.all_channels && least > 1) least /= 2;
  out.channels = std::clamp(std::ceil(out.bytes / kLeastPartBytes), 1.0, least);
  while (out.bytes / out.channels > kMostPartBytes && out.channels <= most / 2) out.channels *= 2;
  return out;
}

double messages_ns(const Collective& of) {
  const PathConstants& p = of.path();
  const Messages m = messages_of(of.shape, of.route);
  const double round_ns = p.peer_round_ns * std::log2(1 + m.inside + m.between);
  const double part = m.bytes / m.channels, hop_ns = m.between > 0 ? of.route.hop_ns : 0;
  const double network_ns = 1e9 * m.between * m.bytes * of.route.ranks_per_node / std::max(1.0, of.route.network_bytes_per_s);
  if (m.bytes <= kPeerLlBytes) {
    const double pass_ns = 1e9 * kLlPassBytes / of.channel_rate(of.ll_bytes_per_s(), 1);
    const double rounds = std::max(1.0, (m.inside + m.between) * m.channels / m.all_channels);
    return p.peer_ll_start_ns + round_ns + hop_ns + rounds * std::ceil(m.bytes / kLlPassBytes) * pass_ns + 2 * network_ns;
  }
  const double rounds = std::max(1.0, (m.inside + m.between) * m.channels / m.all_channels);
  const double channel_ns = 1e9 * rounds * part / p.peer_channel_bytes_per_s;
  const double link_ns = 1e9 * m.inside * m.bytes / (p.peer_fraction * of.route.card_bytes_per_s);
  return p.peer_start_ns + round_ns + of.card.network.simple_hops * hop_ns +
         power_mean(power_mean(channel_ns, link_ns, of.kernel().peer_overlap), network_ns, of.kernel().peer_overlap) +
         1e9 * std::min(part, kStepBytes) / p.peer_copy_bytes_per_s;
}

bool is_chosen(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce;
}

double ns_of(const Collective& of, const NcclChoice& choice) {
  if (choice.algorithm == NcclAlgorithm::nvls || choice.algorithm == NcclAlgorithm::nvls_tree) return of.nvls_ns();
  if (choice.algorithm == NcclAlgorithm::tree) return of.tree_ns(choice);
  const bool pipeline = of.shape.kind == CollectiveKind::broadcast || of.shape.kind == CollectiveKind::reduce;
  return pipeline ? of.pipeline_ns(choice) : of.ring_ns(choice);
}

// Clouds whose networks do not keep the order of bytes (EFA, TCPX) bring a tuner of their own, made from measurements: the fastest is
// chosen.
NcclChoice choice_of(const Collective& of) {
  if (keeps_order(of.route, of.card)) return choose_nccl(of.shape, of.precision, of.route, of.card);
  NcclChoice best;
  double best_ns = std::numeric_limits<double>::infinity();
  for (const NcclChoice& choice : possible_choices(of.shape, of.precision, of.route, of.card)) {
    const double ns = ns_of(of, choice);
    if (ns >= best_ns) continue;
    best = choice;
    best_ns = ns;
  }
  return best;
}

// Of a rank that sends most: times the bytes that nccl-tests count.
double sent_part(const Route& route, CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (route.ranks - 1) / route.ranks;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
    case CollectiveKind::messages:
      return 1;
    default:
      return (route.ranks - 1) / route.ranks;
  }
}

// Between nodes a channel for each network card, doubled while a few channels are faster than this (ncclTopoDupChannels() of NCCL).
double graph_channels(const Route& route, const Links& links) {
  constexpr double kDoubledBytesPerS = 25e9;
  constexpr double kFewChannels = 4;
  if (route.nodes <= 1) return static_cast<double>(route.path->channels) / 2;
  const double part = std::min(1.0, route.ranks_per_node / static_cast<double>(std::max<int64_t>(1, links.cards)));
  const double found = std::max(1.0, part * static_cast<double>(links.network_cards));
  return found <= kFewChannels && links.network_card_bytes_per_s > kDoubledBytesPerS ? 2 * found : found;
}

}  // namespace

Route route_of(const CollectiveShape& shape, const CardRates& card) {
  const Links& links = card.links;
  const NetworkConstants& network = card.network;
  Route out;
  out.ranks = static_cast<double>(std::max<int64_t>(1, shape.ranks));
  out.nodes = static_cast<double>(std::clamp<int64_t>(shape.nodes, 1, std::max<int64_t>(1, shape.ranks)));
  out.ranks_per_node = std::ceil(out.ranks / out.nodes);
  const bool nvlink = links.inside == CardLink::nvswitch || links.inside == CardLink::nvlink_mesh;
  out.nvlink = nvlink && card.nccl.peer;
  // NCCL lets two cards address each other through any processor; more cards only through switches.
  const bool peer = card.nccl.peer && (links.inside == CardLink::pcie_peer ||
                                       (card.addresses_peers && (out.ranks_per_node <= 2 || card.nccl.peer_through_processor)));
  out.path = out.nvlink ? &network.nvlink : peer ? &network.pcie : &network.host;
  out.card_bytes_per_s = nvlink && !out.nvlink ? network.slot_bytes_per_s : links.card_bytes_per_s;
  if (out.nvlink && links.inside == CardLink::nvlink_mesh)
    out.card_bytes_per_s *= mesh_part(out.ranks_per_node, static_cast<double>(links.cards));
  out.bus_bytes_per_s = out.path->bus_fraction * out.card_bytes_per_s;
  out.multicast = links.multicast && out.nvlink && card.nccl.multicast && network.nvlink.nvls_channels > 0;
  const double cards = static_cast<double>(std::max<int64_t>(1, links.cards));
  double rate = static_cast<double>(links.network_cards) * links.network_card_bytes_per_s;
  if (rate <= 0) rate = network.unknown_network_bytes_per_s;
  if (links.rack_nodes > 0 && shape.nodes > links.rack_nodes) rate /= std::max(1.0, links.oversubscription);
  out.network_bytes_per_s = network.network_fraction * rate * std::min(1.0, out.ranks_per_node / cards);
  constexpr double kLargeMessageBytes = 32 << 10;
  const double larger = std::min(1.0, static_cast<double>(shape.bytes) / kLargeMessageBytes);
  out.hop_ns = (links.network_hop_ns > 0 ? links.network_hop_ns : network.hop_ns) * (1 + network.hop_fill * larger);
  out.graph_channels = graph_channels(out, links);
  out.channels = 2 * out.graph_channels;
  return out;
}

Estimate collective_time(const Operation& operation, const CardRates& card) {
  const Collective of(operation, card);
  if (of.route.ranks < 2) return {card.launch_ns + moving_ns(2 * of.bytes, 1, 1, card), Bound::memory};
  return {is_chosen(of.shape.kind) ? ns_of(of, choice_of(of)) : messages_ns(of), Bound::link};
}

Interval collective_interval(const Operation& operation, const CardRates& card) {
  const Route route = route_of(operation.collective, card);
  Interval out = card.interval[OperationKind::collective][operation.precision];
  const auto widen = [&](const Interval& wider) { out = {std::min(out.low, wider.low), std::max(out.high, wider.high)}; };
  if (route.ranks >= 2 && !route.nvlink) widen(card.network.slot_interval);
  if (route.nodes >= 2) widen(card.network.interval);
  return out;
}

constexpr double kBufferBytes = 4 << 20;  // of a channel (NCCL_BUFFSIZE)
constexpr double kMostOfCard = 0.9;       // so that other kernels always go on

CollectiveShare collective_share(const Operation& operation, const CardRates& card) {
  const Collective of(operation, card);
  if (of.route.ranks < 2) return {kMostOfCard, kMostOfCard, kMostOfCard, 0};
  double channels = 0;
  bool has_fences = false;  // Simple's steps end with a fence for the whole system. LL and LL128 send a flag with the bytes.
  if (is_chosen(of.shape.kind)) {
    const NcclChoice choice = choice_of(of);
    channels = static_cast<double>(choice.channels);
    has_fences = choice.protocol == NcclProtocol::simple;
  } else {
    const Messages m = messages_of(of.shape, of.route);
    channels = std::min(m.all_channels, (m.inside + m.between) * m.channels);
    has_fences = m.bytes > kPeerLlBytes;
  }
  const double ns = collective_time(operation, card).ns;
  const double moved = of.kernel().reads * sent_part(of.route, of.shape.kind) * of.bytes;
  const double held = std::min(kMostOfCard, channels / card.multiprocessors);
  const bool stops = card.network.fences_stop_others && has_fences;
  return {.multiprocessors = held,
          .memory = stops ? 1 : std::min(kMostOfCard, 1e9 * moved / ns / card.dram_bytes_per_s),
          .moving = stops ? 1 : held,
          .buffered_bytes = std::llround(std::min(static_cast<double>(card.multiprocessors), channels) * kBufferBytes)};
}

}  // namespace gpucast

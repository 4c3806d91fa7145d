// NCCL's choice of an algorithm, a protocol and a number of channels: the least of its own estimates (src/graph/tuning.cc of NCCL),
// whatever its kernels then need.
#pragma once

#include <vector>

#include "src/time/card_rates.h"
#include "src/time/network.h"
#include "src/time/operation.h"

namespace gpucast {

// How the ranks of a group reach each other.
struct Route {
  const PathConstants* path = nullptr;  // within a node
  bool nvlink = false;
  double ranks = 1, nodes = 1;
  double ranks_per_node = 1;
  double card_bytes_per_s = 0;     // of a card within its node, by the datasheet
  double bus_bytes_per_s = 0;      // by NCCL's count
  double network_bytes_per_s = 0;  // of the group's part of a node's network cards, reached
  double hop_ns = 0;               // of a small message between nodes
  double graph_channels = 1;       // that NCCL's search finds
  double channels = 2;             // of its kernels: two for each of these
  bool multicast = false;
};

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  int64_t channels = 1;
};

Route route_of(const CollectiveShape& shape, const CardRates& card);

// Whether bytes between nodes arrive in the order in which they are sent, which LL128 needs.
bool keeps_order(const Route& route, const CardRates& card);

// For all_reduce, all_gather, reduce_scatter, broadcast and reduce: what the settings allow on these links, at least one.
std::vector<NcclChoice> possible_choices(const CollectiveShape& shape, Precision precision, const Route& route, const CardRates& card);

// The least of NCCL's estimates.
NcclChoice choose_nccl(const CollectiveShape& shape, Precision precision, const Route& route, const CardRates& card);

// Steps of a ring.
double ring_steps(CollectiveKind kind, double ranks);

}  // namespace gpucast

// The constants of collectives (data/network.json): NCCL's own table, by which it chooses, and what its kernels need.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "gpucast/gpu.h"
#include "src/base/links.h"
#include "src/time/interval.h"
#include "src/time/nccl_settings.h"

namespace gpucast {

// A latency by what a step crosses.
struct HopLatency {
  double nvlink_ns = 0, pci_ns = 0, network_ns = 0;
};

// NCCL's estimate of an algorithm in a protocol.
struct TunerLine {
  double start_ns = 0;
  HopLatency step;
  std::array<double, 24> correction = {};  // of the bandwidth, from 64 bytes on, by powers of two; trees alone
};

// By number of nodes: 1, 2, more.
using ByNodes = std::array<double, 3>;

// NCCL's limits for a generation of cards.
struct TunerLimits {
  ByNodes ll_bytes_per_s, ring_ll128_bytes_per_s, tree_ll128_bytes_per_s, tree_bytes_per_s;  // all but the first: of a channel
  ByNodes nvls_tree_bytes_per_s;                                                             // 0: there is none
  double nvls_fraction = 0, nvls_most_bytes_per_s = 0;                                       // of a channel; 0: there is none
};

struct TunerFactors {
  double ring_ll = 0, ring_ll128 = 0, tree = 0, tree_ll = 0, tree_ll128_one_node = 0, tree_ll128_nodes = 0;
  double ring_plateau = 0;  // latency of a ring of several nodes in Simple, where a channel has enough bytes
  double post_ns = 0;       // a ring's step in a job of several nodes takes at least this; three times in Simple
};

// What NCCL's kernels need on one kind of link.
struct PathConstants {
  double bus_fraction = 0;    // of the datasheet's rate: NCCL's figure for the bandwidth of its rings
  int64_t channels = 0;       // of a ring or a tree
  int64_t nvls_channels = 0;  // 0: no NVLS
  double own_work = 0;        // the part of a rank's work on its own chunk (KernelConstants) that takes time: little where links are slow
  // LL. A step has its latency; a channel with all of its threads at work needs longer, and each further pass of its threads is bound by
  // their rate.
  double ll_start_ns = 0, ll_step_ns = 0, ll_fill_ns = 0, ll_channels_ns = 0, ll_fraction = 0;
  double ll128_start_ns = 0, ll128_step_ns = 0, ll128_fraction = 0;
  // Simple sends a chunk in two slices: the second follows when its threads are free, the next step's first when the neighbour's has come.
  double simple_start_ns = 0, simple_wait_ns = 0, simple_slice_ns = 0, simple_fraction = 0;
  double nvls_start_ns = 0, nvls_loop_ns = 0, nvls_fraction = 0;
  // Messages: a channel's rate; the rate at which a receiver copies a chunk from the buffer; the part of the link's rate that all reach.
  double peer_start_ns = 0, peer_ll_start_ns = 0, peer_round_ns = 0;  // the last: for each doubling of the ranks
  double peer_channel_bytes_per_s = 0, peer_copy_bytes_per_s = 0, peer_fraction = 0;
};

// What is the same on all links.
struct KernelConstants {
  double ll_fill_power = 0;
  double ll_extra_all_reduce = 0, ll_extra_all_gather = 0, ll_extra_reduce_scatter = 0;  // work of a rank on its own chunk, in steps
  double simple_extra_all_reduce = 0, simple_extra_all_gather = 0, simple_extra_reduce_scatter = 0;
  double ll_int8 = 0, simple_int8 = 0;  // reductions of int8: times longer
  double simple_overlap = 0;            // power mean of a slice's two waits
  double tree_fill = 0;                 // a step's part of the time of a chunk until a tree's pipeline is full
  double nvls_fill = 0;                 // chunks until the pipeline of NVLS is full
  double peer_overlap = 0;              // power mean of a message's channel and its link
  double reads = 0;                     // of device memory for each byte that a channel sends
};

struct NetworkConstants {
  std::array<TunerLine, 3> ring, tree;  // by protocol
  TunerLine nvls, nvls_tree;
  TunerLimits limits;
  TunerFactors factors;
  PathConstants nvlink, pcie, host;  // nvlink: of the card's generation
  KernelConstants kernel;
  double hop_ns = 0;                       // of a small message between nodes, where the machine does not say
  double hop_fill = 0;                     // how much longer it is for larger messages, as a part of it
  double ordered_most_hop_ns = 0;          // networks with longer hops (EFA, TCPX) do not keep the order of bytes, which LL128 needs
  double simple_hops = 0;                  // a step between nodes in Simple, in these
  double network_fraction = 0;             // of the network cards' rate
  double unknown_network_bytes_per_s = 0;  // of a node without known network cards
  double slot_bytes_per_s = 0;             // of the card's PCIe slot, in one direction
  bool fences_stop_others = false;         // other kernels do not go on while NCCL moves bytes in Simple
  Interval slot_interval;                  // of collectives between cards in slots; ...
  Interval interval;                       // ... of several nodes
};

NetworkConstants read_network_constants(const Gpu& gpu, const std::string& file);

// Over PCIe; GeForce cards since Turing do not.
bool addresses_peers(const Gpu& gpu);

// The part of a card's links that lead to the other `ranks` of a group. A card has links to three neighbours.
double mesh_part(double ranks, double cards);

// Of the machine that a card is usually in (data/machines.json); of a card without one: a slot.
Links usual_links(const Gpu& gpu);

}  // namespace gpucast

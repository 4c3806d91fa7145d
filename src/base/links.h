// How the cards of a machine reach each other.
#pragma once

#include <compare>
#include <cstdint>

namespace gpucast {

// The cards of a node, where nothing says how many.
inline constexpr int64_t kUsualNodeCards = 8;

// Between the cards of one node.
enum class CardLink : uint8_t {
  nvswitch,     // each card reaches all others at its full rate
  nvlink_mesh,  // each pair has its own links
  pcie_peer,    // a switch or the processor passes on what cards send each other
  host,         // through the host's memory: cards cannot address each other
  count_
};

struct Links {
  int64_t cards = kUsualNodeCards;  // of a node
  CardLink inside = CardLink::nvswitch;
  double card_bytes_per_s = 0;          // of a card, in one direction, as the datasheet has it
  bool multicast = false;               // the switch adds and copies (NVLS)
  double network_card_bytes_per_s = 0;  // of a network card, in one direction
  int64_t network_cards = 0;            // of a node; 0: it is alone
  double oversubscription = 1;          // between racks, the rate is divided by this
  int64_t rack_nodes = 0;               // nodes that reach each other at the full rate; 0: all
  double network_hop_ns = 0;            // of a small message of NCCL between two nodes; 0: InfiniBand's
  friend auto operator<=>(const Links&, const Links&) = default;
};

}  // namespace gpucast

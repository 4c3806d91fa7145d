// The cards that jobs run on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpucast/gpu.h"
#include "src/pack/constants.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {

// A size of MIG slices, in the card's units: an A100 has 7 units of compute and 8 of memory.
struct MigProfile {
  std::string name;  // "3g.40gb"
  int compute = 0, memory = 0;
  double compute_share = 0, memory_share = 0;
  int64_t bytes = 0;
  std::vector<int> starts;  // units of memory at which a slice may begin
};

// The smallest first; empty: the card has no MIG.
std::vector<MigProfile> mig_profiles(const Gpu& gpu, const PackConstants& constants = pack_constants());

struct Card {
  std::string id;  // "p40/0"
  uint32_t type = 0;
};

struct Cluster {
  std::vector<Gpu> types;
  std::vector<Card> cards;  // grouped by type, in the order of `types`
  SharingMode mode = SharingMode::mps;
};

// "4xp40,2xa100-80" or "rtx4090". Throws Error: an unknown card (with a "did you mean"), a count of 0 or above a million, no card at all.
Cluster parse_cluster(std::string_view text, SharingMode mode);

}  // namespace gpucast::pack

// A job's demand on one type of card, as the policy counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpucast/gpu.h"
#include "src/pack/cluster.h"
#include "src/pack/constants.h"
#include "src/pack/fit_tree.h"
#include "src/pack/job.h"
#include "src/pack/kernel_mix.h"
#include "src/pack/policy.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {

inline constexpr int32_t kWholeCard = 1'000'000;  // Capacity::share of an idle card: whole numbers, so that sums are exact

// Which jobs may share a card, and how sharing is counted.
struct SharingRules {
  const Policy* policy = nullptr;
  SharingMode mode = SharingMode::mps;
  const PackConstants* constants = nullptr;
  bool weighs_neighbours = false;  // never with MIG, because a slice has one job
  bool soft_shares = false;        // shares on a card may exceed the card, because neighbours are weighed instead
};
// `constants` must outlive the rules.
SharingRules sharing_rules(const Policy& policy, SharingMode mode, const PackConstants& constants);

// The figures of a card type that a job's demand depends on.
struct CardSize {
  const Gpu* gpu = nullptr;
  int64_t capacity_bytes = 0;
  std::vector<MigProfile> profiles;  // empty without MIG
};
CardSize card_size(const Gpu& gpu, const SharingRules& rules);

// Memory and share of a card. With MIG, `bytes` is the number of a profile, from 1. Unset: the job never fits this type.
std::optional<Capacity> card_demand(const CardSize& size, const Figures& figures, const SharingRules& rules);

// The job's mix with the limits that the mode sets. `mig_profile`: -1 without MIG.
KernelMix limited_mix(const CardSize& size, const Figures& figures, const Capacity& demand, int mig_profile, const SharingRules& rules);

// The slowdown of a job without neighbours: only its own limits slow it.
double slowdown_alone(const CardSize& size, const Figures& figures, int mig_profile, const SharingRules& rules);

}  // namespace gpucast::pack

#include "src/pack/demand.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "src/pack/interference.h"

namespace gpucast::pack {
namespace {

constexpr double kLeastDemandShare = int32_t{kWholeCard / kMostSharers};

int32_t whole_share(double share) {
  return static_cast<int32_t>(std::clamp(std::ceil(share * kWholeCard - 1e-6), kLeastDemandShare, double{kWholeCard}));
}

// The job's share of a card's time. Jobs whose shares add up to at most 1 hardly slow each other.
double time_share(const Figures& figures) { return kernel_mix_of(figures).busy; }

// The job's share of the multiprocessors, in whole percent as CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
double thread_limit(const Figures& figures) {
  const KernelMix mix = kernel_mix_of(figures);
  return std::clamp(std::ceil(100 * std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor}) - 1e-9), 1.0, 100.0) / 100;
}

std::optional<Capacity> slice_demand(const CardSize& size, const Figures& figures, const SharingRules& rules) {
  for (size_t p = 0; p < size.profiles.size(); ++p) {
    const MigProfile& profile = size.profiles[p];
    const bool is_largest = p + 1 == size.profiles.size();
    if (rules.policy->sees_memory && figures.request_bytes > profile.bytes) continue;
    if (!is_largest && profile.compute_share < rules.policy->share(figures)) continue;
    if (!is_largest && rules.policy->loss &&
        slowdown_alone(size, figures, static_cast<int>(p), rules) > rules.constants->most_slice_slowdown)
      continue;
    return Capacity{static_cast<int64_t>(p) + 1, 0};
  }
  return std::nullopt;
}

}  // namespace

SharingRules sharing_rules(const Policy& policy, SharingMode mode, const PackConstants& constants) {
  const bool weighs = policy.loss && mode != SharingMode::mig;
  return {&policy, mode, &constants, weighs, weighs && mode != SharingMode::mps_limits};
}

CardSize card_size(const Gpu& gpu, const SharingRules& rules) {
  CardSize out = {&gpu, static_cast<int64_t>(gpu.total_memory_bytes), {}};
  if (rules.mode == SharingMode::mig) out.profiles = mig_profiles(gpu, *rules.constants);
  return out;
}

std::optional<Capacity> card_demand(const CardSize& size, const Figures& figures, const SharingRules& rules) {
  if (rules.mode == SharingMode::mig) return slice_demand(size, figures, rules);
  if (rules.policy->sees_memory && figures.request_bytes > size.capacity_bytes) return std::nullopt;
  double share = rules.soft_shares ? time_share(figures) : rules.policy->share(figures);
  if (rules.mode == SharingMode::mps_limits) share = std::max(share, thread_limit(figures));
  return Capacity{rules.policy->sees_memory ? figures.request_bytes : 0, whole_share(share)};
}

KernelMix limited_mix(const CardSize& size, const Figures& figures, const Capacity& demand, int mig_profile, const SharingRules& rules) {
  KernelMix mix = kernel_mix_of(figures);
  if (rules.mode == SharingMode::mps_limits) mix.compute_limit = static_cast<double>(demand.share) / kWholeCard;
  if (mig_profile >= 0) {
    mix.compute_limit = size.profiles[static_cast<size_t>(mig_profile)].compute_share;
    mix.memory_limit = size.profiles[static_cast<size_t>(mig_profile)].memory_share;
  }
  return mix;
}

double slowdown_alone(const CardSize& size, const Figures& figures, int mig_profile, const SharingRules& rules) {
  const KernelMix mix = limited_mix(size, figures, {0, kWholeCard}, mig_profile, rules);
  return slowdowns(std::span(&mix, 1), *size.gpu, rules.mode, *rules.constants).front().expected;
}

}  // namespace gpucast::pack

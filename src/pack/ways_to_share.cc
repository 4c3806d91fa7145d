#include "src/pack/ways_to_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "src/base/bytes.h"
#include "src/pack/cluster.h"
#include "src/pack/demand.h"
#include "src/pack/mig_slices.h"
#include "src/pack/policy.h"

namespace gpucast::pack {
namespace {

// In whole percent of the multiprocessors, by job.
std::vector<double> thread_limits(std::span<const Job> jobs, const CardSize& size, const SharingRules& rules) {
  std::vector<double> shares;
  double sum = 0;
  for (const Job& job : jobs) {
    const auto demand = card_demand(size, *job.figures_on(size.gpu->id), rules);
    shares.push_back(demand ? static_cast<double>(demand->share) / kWholeCard : 1);
    sum += shares.back();
  }
  for (double& share : shares) share = std::max(1.0, std::floor(100 * share / std::max(1.0, sum) + 1e-9));
  return shares;
}

// Shared by processes that may each use all of it, or a part of the multiprocessors.
WayToShare without_slices(SharingMode mode, std::span<const Job> jobs, const Gpu& gpu, const PackConstants& constants) {
  WayToShare out;
  out.mode = mode;
  const SharingRules rules = sharing_rules(kMemoryPolicy, mode, constants);
  const CardSize size = card_size(gpu, rules);
  int64_t request_bytes = 0;
  std::vector<KernelMix> mixes;
  for (const Job& job : jobs) {
    const Figures& figures = *job.figures_on(gpu.id);
    request_bytes += figures.request_bytes;
    mixes.push_back(kernel_mix_of(figures));
  }
  if (request_bytes > size.capacity_bytes) {
    out.problem = fmt::format("they ask for {} of {}", format_bytes(request_bytes), format_bytes(size.capacity_bytes));
    return out;
  }
  if (mode == SharingMode::mps_limits) {
    const std::vector<double> limits = thread_limits(jobs, size, rules);
    for (size_t i = 0; i < limits.size(); ++i) {
      mixes[i].compute_limit = limits[i] / 100;
      out.limits.push_back(fmt::format("{:.0f} %", limits[i]));
    }
  }
  out.slowdowns = slowdowns(mixes, gpu, mode, constants);
  return out;
}

// The slices of the jobs from one on, where some units of memory are taken already.
struct Slices {
  double progress = -1;  // below 0: there is no room
  int profile = 0;       // of the first of these jobs
  uint32_t taken_units = 0;
};

class SliceSearch {
 public:
  SliceSearch(std::span<const Job> jobs, const Gpu& gpu, const PackConstants& constants)
      : rules_(sharing_rules(kMemoryPolicy, SharingMode::mig, constants)), size_(card_size(gpu, rules_)) {
    for (const Job& job : jobs) {
      const Figures& figures = *job.figures_on(gpu.id);
      auto& speeds = speeds_.emplace_back();
      for (size_t p = 0; p < size_.profiles.size(); ++p)
        speeds.push_back(figures.request_bytes > size_.profiles[p].bytes ? 0
                                                                         : 1 / slowdown_alone(size_, figures, static_cast<int>(p), rules_));
    }
  }

  const CardSize& size() const { return size_; }

  const Slices& best(size_t job, uint32_t taken_units) {
    const auto [at, is_new] = found_.try_emplace({job, taken_units});
    if (!is_new) return at->second;
    Slices out;
    if (job == speeds_.size()) out.progress = 0;
    for (size_t p = 0; job < speeds_.size() && p < size_.profiles.size(); ++p) {
      if (speeds_[job][p] <= 0) continue;
      for (const int start : size_.profiles[p].starts) {
        const uint32_t units = slice_units(size_.profiles[p], start);
        if ((units & taken_units) != 0) continue;
        const double others = best(job + 1, taken_units | units).progress;
        if (others >= 0 && speeds_[job][p] + others > out.progress)
          out = {speeds_[job][p] + others, static_cast<int>(p), taken_units | units};
      }
    }
    return at->second = out;
  }

  const SharingRules& rules() const { return rules_; }

 private:
  SharingRules rules_;
  CardSize size_;
  std::vector<std::vector<double>> speeds_;  // by job and profile; 0: its memory does not fit
  std::map<std::pair<size_t, uint32_t>, Slices> found_;
};

WayToShare with_slices(std::span<const Job> jobs, const Gpu& gpu, const PackConstants& constants) {
  WayToShare out;
  out.mode = SharingMode::mig;
  SliceSearch search(jobs, gpu, constants);
  if (search.best(0, 0).progress < 0) {
    out.problem = fmt::format("the card has no slices for {} jobs of these sizes", jobs.size());
    return out;
  }
  uint32_t taken_units = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Slices chosen = search.best(i, taken_units);
    taken_units = chosen.taken_units;
    out.limits.push_back(search.size().profiles[static_cast<size_t>(chosen.profile)].name);
    const KernelMix mix = limited_mix(search.size(), *jobs[i].figures_on(gpu.id), {0, kWholeCard}, chosen.profile, search.rules());
    out.slowdowns.push_back(slowdowns(std::span(&mix, 1), gpu, SharingMode::mig, constants).front());
  }
  return out;
}

}  // namespace

std::vector<WayToShare> ways_to_share(std::span<const Job> jobs, const Gpu& gpu, const PackConstants& constants) {
  std::vector<WayToShare> out;
  for (const SharingMode mode : {SharingMode::mps, SharingMode::mps_limits, SharingMode::timeslice})
    out.push_back(without_slices(mode, jobs, gpu, constants));
  if (!mig_profiles(gpu, constants).empty()) out.push_back(with_slices(jobs, gpu, constants));
  for (WayToShare& way : out)
    for (const Slowdown& slower : way.slowdowns) way.progress += 1 / slower.expected;
  return out;
}

}  // namespace gpucast::pack

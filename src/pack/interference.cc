#include "src/pack/interference.h"

#include <algorithm>

namespace gpucast::pack {
namespace {

// Of a job that its own limits alone slow.
double slowdown_by_limits(const KernelMix& mix) {
  const double compute = std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor}) / mix.compute_limit;
  const double memory = std::max(mix.dram, mix.l2) / mix.memory_limit;
  return std::max({1.0, mix.compute_limit < 1 ? compute : 0.0, mix.memory_limit < 1 ? memory : 0.0});
}

// Of the time in which the job has a kernel.
double memory_share(const KernelMix& mix, double typical) {
  if (mix.busy <= 0) return 0;
  const bool known = std::max({mix.dram, mix.compute, mix.tensor}) > 0;
  return known ? std::min(1.0, mix.dram / mix.busy) : typical;
}

// Time slices from Volta on: a kernel takes longer where it meets one of another job.
std::vector<Slowdown> slowdowns_by_meeting(std::span<const KernelMix> mixes, const MeetingConstants& constants) {
  constexpr int kRounds = 2;  // slower jobs have kernels for longer: a third round changes less than 0.1 %
  std::vector<double> active, stretched(mixes.size()), slowdown(mixes.size());  // active: the share of its time in which a job has a kernel
  active.reserve(mixes.size());
  for (const KernelMix& mix : mixes) active.push_back(mix.busy);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < mixes.size(); ++i) {
      stretched[i] = 1;
      for (size_t j = 0; j < mixes.size(); ++j) {
        if (i == j) continue;
        const double both = mixes[i].busy * mixes[j].busy;
        stretched[i] += (constants.meeting + constants.both_full * both * both * both * both +
                         constants.memory * memory_share(mixes[j], constants.typical_memory)) *
                        active[j];
      }
      slowdown[i] = 1 - mixes[i].busy + mixes[i].busy * stretched[i];
    }
    for (size_t i = 0; i < mixes.size(); ++i) active[i] = mixes[i].busy * stretched[i] / slowdown[i];
  }
  double together = 0;
  for (size_t i = 0; i < mixes.size(); ++i) together += mixes[i].busy / slowdown[i];
  const double crowded = std::max(1.0, together / constants.together);
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const double by_meeting : slowdown) {
    const double expected = by_meeting * crowded;
    out.push_back({std::max(1.0, expected * constants.low), expected, expected * constants.high});
  }
  return out;
}

struct Turn {
  double ns = 0;
  double held = 1;  // share of the multiprocessors, during the turn
};

// A turn is a kernel, or, where it has more blocks than the multiprocessors hold, sometimes a wave of them.
Turn mps_turn(const KernelMix& mix, const MpsConstants& constants) {
  const auto kernels = static_cast<double>(mix.kernels), waves = static_cast<double>(std::max(mix.waves, mix.kernels));
  const double gpu_ns = mix.busy * mix.step_ns, held = std::max(mix.sm_active, mix.warps);
  const double blocks_ns =
      kernels > 0 && gpu_ns > 0 ? gpu_ns / (kernels + constants.wave_ends_turn * (waves - kernels)) : constants.typical_turn_ns;
  return {blocks_ns + constants.launches_ns, mix.busy > 0 && held > 0 ? std::min(1.0, held / mix.busy) : 1.0};
}

// A job gives the card away when its step is done, since its host then waits for the loss or the next batch, and else when its slice is
// over.
Turn slice_turn(const KernelMix& mix, const SliceConstants& constants) {
  const double gpu_ns = mix.busy * mix.step_ns;
  if (gpu_ns <= 0) return {constants.slice_ns, 1};
  return {1 / (1 / std::max(gpu_ns, constants.least_step_ns) + 1 / constants.slice_ns), 1};
}

// Above 1: together the jobs ask for more of a part of the card than it has, and each of them waits for it.
double most_asked(std::span<const KernelMix> mixes, bool with_warps) {
  double compute = 0, tensor = 0, dram = 0, l2 = 0, pcie = 0, warps = 0;
  for (const KernelMix& mix : mixes) {
    compute += mix.compute;
    tensor += mix.tensor;
    dram += mix.dram;
    l2 += mix.l2;
    pcie += mix.pcie;
    warps += mix.warps;
  }
  return std::max({compute, tensor, dram, l2, pcie, with_warps ? warps : 0.0});
}

// Jobs take turns: a job that comes while a neighbour has the card waits until that turn is over. So in each of its turns a job waits for
// one turn of each neighbour that has kernels then, and a job with short turns loses most. No job is slowed by less than `least`.
template <class Constants>
std::vector<Slowdown> slowdowns_by_turns(std::span<const KernelMix> mixes, const Constants& constants,
                                         Turn (*turn_of_job)(const KernelMix&, const Constants&), double least) {
  constexpr int kRounds = 1;  // slower jobs have kernels for longer: a second round changes less than 1 % as a rule
  struct Waiting {
    double busy, turn_ns, cost_ns;  // cost_ns: a turn's, to a neighbour that meets it
    double asked_ns;                // the same, times the share of its time in which the job has kernels
    double slowdown;
  };
  std::vector<Waiting> jobs;
  jobs.reserve(mixes.size());
  for (const KernelMix& mix : mixes) {
    const Turn turn = turn_of_job(mix, constants);
    const double cost_ns = constants.cost * turn.held * turn.ns;
    jobs.push_back({mix.busy, turn.ns, cost_ns, mix.busy * cost_ns, 1});
  }
  for (int round = 0; round <= kRounds; ++round) {
    double all_asked_ns = 0;
    for (const Waiting& job : jobs) all_asked_ns += job.asked_ns;
    for (Waiting& job : jobs) {
      const double stretched = job.busy * (1 + std::max(0.0, all_asked_ns - job.asked_ns) / job.turn_ns);
      job.slowdown = 1 - job.busy + stretched;
      if (round < kRounds) job.asked_ns = stretched / job.slowdown * job.cost_ns;
    }
  }
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const Waiting& job : jobs) {
    const double expected = std::max(job.slowdown, least);
    out.push_back({std::max(1.0, expected * constants.low), expected, expected * constants.high});
  }
  return out;
}

// Multiprocessors of their own: only sums above what the card has slow, and every job alike.
std::vector<Slowdown> slowdowns_with_limits(std::span<const KernelMix> mixes, double least_loss) {
  const double asked = most_asked(mixes, true);
  double busy = 0;
  for (const KernelMix& mix : mixes) busy += mix.busy;
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const KernelMix& mix : mixes) {
    const double by_limits = slowdown_by_limits(mix);
    const double expected = std::max({1.0, by_limits, asked});
    // At most: all kernels one after another, each waiting for the neighbours'.
    out.push_back({1 + (expected - 1) * least_loss, expected, std::max(expected, by_limits + busy - mix.busy)});
  }
  return out;
}

}  // namespace

std::vector<Slowdown> slowdowns(std::span<const KernelMix> mixes, const Gpu& gpu, SharingMode mode, const PackConstants& constants) {
  if (mode == SharingMode::mig || mixes.size() == 1) {
    std::vector<Slowdown> out;
    out.reserve(mixes.size());
    for (const KernelMix& mix : mixes) {
      const double by_limits = slowdown_by_limits(mix);
      out.push_back({by_limits, by_limits, by_limits});
    }
    return out;
  }
  const bool slices_are_turns = gpu.compute_major < 7;
  if (mode == SharingMode::timeslice && slices_are_turns) return slowdowns_by_turns(mixes, constants.slices_until_pascal, slice_turn, 1);
  if (mode == SharingMode::timeslice) return slowdowns_by_meeting(mixes, constants.slices_since_volta);
  // Warps take turns, so their sum slows nobody by itself.
  if (mode == SharingMode::mps) return slowdowns_by_turns(mixes, constants.mps, mps_turn, most_asked(mixes, false));
  return slowdowns_with_limits(mixes, constants.mps_limits_least_loss);
}

}  // namespace gpucast::pack

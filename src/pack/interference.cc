#include "src/pack/interference.h"

#include <algorithm>

namespace gpucast::pack {
namespace {

// What the job's own limits make of it.
double own_slowdown(const KernelMix& mix) {
  const double compute = std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor}) / mix.compute_limit;
  const double memory = std::max(mix.dram, mix.l2) / mix.memory_limit;
  return std::max({1.0, mix.compute_limit < 1 ? compute : 0.0, mix.memory_limit < 1 ? memory : 0.0});
}

// Time slices from Volta on, fitted on 1,388 measured pairs of a newer card (eval/packing/interference.py --fit). Where a kernel of one job
// meets one of another it takes longer by a part that grows with how much of that other's time goes to memory, and where both always have
// work: then slices are turns.
constexpr double kMeeting = 0.071, kBothFull = 0.363, kMemory = 0.557;
constexpr double kTogether = 1.2;  // jobs have kernels for this much of the time in all, as in the middle pair that asks for more than 1.5
constexpr double kTypicalMemory = 0.49;      // the median of the 66 jobs that these pairs are of, for one of which only `busy` is known
constexpr double kLow = 0.82, kHigh = 1.17;  // 9 of 10 slowdowns lie between, of models that were left out of the fit

// Of the time in which it has a kernel.
double memory_of(const KernelMix& mix) {
  if (mix.busy <= 0) return 0;
  const bool known = std::max({mix.dram, mix.compute, mix.tensor}) > 0;
  return known ? std::min(1.0, mix.dram / mix.busy) : kTypicalMemory;
}

std::vector<Slowdown> sliced(std::span<const KernelMix> mixes) {
  constexpr int kRounds = 2;                                                    // slower jobs are there longer: the rest is below 0.1 %
  std::vector<double> active, stretched(mixes.size()), slowdown(mixes.size());  // the share of its time in which a job has a kernel
  active.reserve(mixes.size());
  for (const KernelMix& mix : mixes) active.push_back(mix.busy);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < mixes.size(); ++i) {
      stretched[i] = 1;
      for (size_t j = 0; j < mixes.size(); ++j) {
        if (i == j) continue;
        const double both = mixes[i].busy * mixes[j].busy;
        stretched[i] += (kMeeting + kBothFull * both * both * both * both + kMemory * memory_of(mixes[j])) * active[j];
      }
      slowdown[i] = 1 - mixes[i].busy + mixes[i].busy * stretched[i];
    }
    for (size_t i = 0; i < mixes.size(); ++i) active[i] = mixes[i].busy * stretched[i] / slowdown[i];
  }
  double together = 0;
  for (size_t i = 0; i < mixes.size(); ++i) together += mixes[i].busy / slowdown[i];
  const double crowded = std::max(1.0, together / kTogether);
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const double alone : slowdown) {
    const double expected = alone * crowded;
    out.push_back({std::max(1.0, expected * kLow), expected, expected * kHigh});
  }
  return out;
}

// Taking turns: who comes while a neighbour has the card waits until that one's turn is over. So in each of its turns a job waits for one
// of each neighbour that has kernels then, and who has short turns loses most.
struct Turns {
  double cost;       // of a neighbour's turn
  double low, high;  // 9 of 10 slowdowns lie between, of models that were left out of the fit
  double (*turn_ns)(const KernelMix& mix);
  double (*held)(const KernelMix& mix);  // of the multiprocessors, in its turns
};

// MPS, fitted on 951 slowdowns in measured pairs (eval/packing/gavel.py --fit). A turn is a kernel, or, where it has more blocks than the
// multiprocessors hold, now and then a wave of them.
constexpr double kWaveEndsTurn = 0.36;
constexpr double kLaunchesNs = 5000;      // what a turn takes beside its blocks: two launches
constexpr double kTypicalTurnNs = 26000;  // the median of the 52 jobs of these pairs, for one whose kernels are not known

double kernel_turn_ns(const KernelMix& mix) {
  const auto kernels = static_cast<double>(mix.kernels), waves = static_cast<double>(std::max(mix.waves, mix.kernels));
  const double gpu_ns = mix.busy * mix.step_ns;
  return (kernels > 0 && gpu_ns > 0 ? gpu_ns / (kernels + kWaveEndsTurn * (waves - kernels)) : kTypicalTurnNs) + kLaunchesNs;
}

double held_of(const KernelMix& mix) {
  const double held = std::max(mix.sm_active, mix.warps);
  return mix.busy > 0 && held > 0 ? std::min(1.0, held / mix.busy) : 1.0;
}

constexpr Turns kMpsTurns = {.cost = 1.21, .low = 0.79, .high = 1.30, .turn_ns = kernel_turn_ns, .held = held_of};

// Time slices before Volta, fitted on 1,245 slowdowns in pairs on a P100 and a K80 (eval/packing/gavel.py --fit). A job gives the card away
// when its step is done, since its host then waits for the loss or the next batch, and else after so much time of its kernels. Jobs with
// less in a step than the least of these pairs count as that.
constexpr double kSliceNs = 24.6e6;
constexpr double kLeastStepNs = 7e6;

double slice_turn_ns(const KernelMix& mix) {
  const double gpu_ns = mix.busy * mix.step_ns;
  if (gpu_ns <= 0) return kSliceNs;
  return 1 / (1 / std::max(gpu_ns, kLeastStepNs) + 1 / kSliceNs);
}

double all_held(const KernelMix& /*mix*/) { return 1; }

constexpr Turns kOldSlices = {.cost = 0.913, .low = 0.79, .high = 1.37, .turn_ns = slice_turn_ns, .held = all_held};

// Above 1: together they ask for more of a part of the card than it has, and all wait for it alike.
double asked_of(std::span<const KernelMix> mixes, bool warps_too) {
  double compute = 0, tensor = 0, dram = 0, l2 = 0, pcie = 0, warps = 0;
  for (const KernelMix& mix : mixes) {
    compute += mix.compute;
    tensor += mix.tensor;
    dram += mix.dram;
    l2 += mix.l2;
    pcie += mix.pcie;
    warps += mix.warps;
  }
  return std::max({compute, tensor, dram, l2, pcie, warps_too ? warps : 0.0});
}

// Nobody is faster than `least`.
std::vector<Slowdown> in_turns(std::span<const KernelMix> mixes, const Turns& turns, double least) {
  constexpr int kRounds = 1;  // slower jobs are there longer: the rest is below 1 % as a rule
  struct Waiting {
    double busy, turn, held, line, slowdown;  // `line`: what others wait for it, with the share of its time in which it has kernels
  };
  const auto waiting_of = [&](const KernelMix& mix) {
    const double turn = turns.turn_ns(mix), held = turns.cost * turns.held(mix) * turn;
    return Waiting{mix.busy, turn, held, mix.busy * held, 1};
  };
  std::vector<Waiting> jobs;
  jobs.reserve(mixes.size());
  for (const KernelMix& mix : mixes) jobs.push_back(waiting_of(mix));
  for (int round = 0; round <= kRounds; ++round) {
    double line = 0;
    for (const Waiting& job : jobs) line += job.line;
    for (Waiting& job : jobs) {
      const double longer = job.busy * (1 + std::max(0.0, line - job.line) / job.turn);
      job.slowdown = 1 - job.busy + longer;
      if (round < kRounds) job.line = longer / job.slowdown * job.held;
    }
  }
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const Waiting& job : jobs) {
    const double expected = std::max(job.slowdown, least);
    out.push_back({std::max(1.0, expected * turns.low), expected, expected * turns.high});
  }
  return out;
}

}  // namespace

std::vector<Slowdown> slowdowns(std::span<const KernelMix> mixes, const Gpu& gpu, SharingMode mode) {
  const bool slices_are_turns = gpu.compute_major < 7;
  if (mode == SharingMode::timeslice && mixes.size() > 1) return slices_are_turns ? in_turns(mixes, kOldSlices, 1) : sliced(mixes);
  if (mode == SharingMode::mps && mixes.size() > 1) return in_turns(mixes, kMpsTurns, asked_of(mixes, false));  // warps take turns
  const double shared = asked_of(mixes, true);
  double busy = 0;
  for (const KernelMix& mix : mixes) busy += mix.busy;
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const KernelMix& mix : mixes) {
    const double own = own_slowdown(mix);
    if (mode == SharingMode::mig || mixes.size() == 1) {
      out.push_back({own, own, own});
      continue;
    }
    const double expected = std::max({1.0, own, shared});
    // Half of it, where gaps fit into one another; all kernels one after another, where each waits for the others'.
    out.push_back({1 + (expected - 1) / 2, expected, std::max(expected, own + busy - mix.busy)});
  }
  return out;
}

}  // namespace gpucast::pack

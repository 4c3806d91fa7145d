#include "src/pack/interference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace gpucast::pack {
namespace {

// The slowdown of a job that only its own limits slow.
double slowdown_by_limits(const KernelMix& mix) {
  const double compute = std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor}) / mix.compute_limit;
  const double memory = std::max(mix.dram, mix.l2) / mix.memory_limit;
  return std::max({1.0, mix.compute_limit < 1 ? compute : 0.0, mix.memory_limit < 1 ? memory : 0.0});
}

bool are_kernels_known(const KernelMix& mix) { return mix.kernels > 0; }

// The share of memory time in the time in which the job has a kernel.
double memory_share(const KernelMix& mix, double typical) {
  if (mix.busy <= 0) return 0;
  const bool known = std::max({mix.dram, mix.compute, mix.tensor}) > 0;
  return known ? std::min(1.0, mix.dram / mix.busy) : typical;
}

// Time slices, for jobs with figures of nvidia-smi alone: a kernel lasts longer while it meets another job's kernel.
std::vector<double> slowdowns_by_meeting(std::span<const KernelMix> mixes, const SharedTimeConstants& constants) {
  constexpr int kRounds = 2;  // slower jobs have kernels for a larger share of the time; a third round changes less than 0.1 %
  std::vector<double> active, stretched(mixes.size()), slowdown(mixes.size(), 1);  // active: share of a job's time with a kernel
  active.reserve(mixes.size());
  for (const KernelMix& mix : mixes) active.push_back(mix.busy);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < mixes.size(); ++i) {
      if (are_kernels_known(mixes[i])) continue;
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
    for (size_t i = 0; i < mixes.size(); ++i)
      if (!are_kernels_known(mixes[i])) active[i] = mixes[i].busy * stretched[i] / slowdown[i];
  }
  return slowdown;
}

struct Asked {
  double share = 0, weight = 1;  // of the card's time; its weight against the other jobs
};

// Divides the card's time: all of it for a job alone, `together` of it if two jobs or more ask for their parts. A job gets what it asks for
// if that is less than its part by weight. The other jobs divide what it leaves.
std::vector<double> fair_shares(const std::vector<Asked>& asked, double together) {
  std::vector<size_t> order(asked.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const double left = asked[a].share * asked[b].weight, right = asked[b].share * asked[a].weight;
    return left != right ? left < right : asked[a].share < asked[b].share;
  });
  double weights = 0, sum = 0, most = 0;
  for (const Asked& job : asked) {
    weights += job.weight;
    sum += job.share;
    most = std::max(most, job.share);
  }
  together = 1 + (together - 1) * std::min(1.0, (sum - most) / (together / 2));
  std::vector<double> out(asked.size());
  for (const size_t i : order) {
    out[i] = std::min(asked[i].share, together * asked[i].weight / weights);
    together -= out[i];
    weights -= asked[i].weight;
  }
  return out;
}

// The host of a PyTorch job runs ahead: its kernels wait in a queue while a neighbour has the card, and then run without gaps. So a job is
// slowed only if its share of the card's time is less than it uses alone. Every slowdown is at least `by_meeting` and `least`.
template <class Constants>
std::vector<Slowdown> slowdowns_by_shares(const std::vector<Asked>& asked, const Constants& constants,
                                          const std::vector<double>& by_meeting, double least) {
  const std::vector<double> shares = fair_shares(asked, constants.together);
  std::vector<Slowdown> out;
  out.reserve(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    const double by_share = shares[i] > 0 ? by_meeting[i] * asked[i].share / shares[i] : 1;
    const double expected = std::max({1.0, by_share, least});
    out.push_back({std::max(1.0, expected * constants.low), expected, expected * constants.high});
  }
  return out;
}

// Time slices have one length, so all parts are equal.
std::vector<Slowdown> slowdowns_in_slices(std::span<const KernelMix> mixes, const SharedTimeConstants& constants) {
  const std::vector<double> by_meeting = slowdowns_by_meeting(mixes, constants);
  std::vector<Asked> asked;
  asked.reserve(mixes.size());
  for (size_t i = 0; i < mixes.size(); ++i)
    asked.push_back({mixes[i].busy * (are_kernels_known(mixes[i]) ? 1 : constants.nvml_busy) / by_meeting[i], 1});
  return slowdowns_by_shares(asked, constants, by_meeting, 1);
}

// Kernels of all jobs run at once. Jobs with longer kernels get more of the card.
std::vector<Slowdown> slowdowns_on_shared_card(std::span<const KernelMix> mixes, const SharedCardConstants& constants,
                                               double typical_turn_ns, double least) {
  std::vector<Asked> asked;
  asked.reserve(mixes.size());
  for (const KernelMix& mix : mixes) {
    const double gpu_ns = mix.busy * mix.step_ns;
    const double turn_ns = are_kernels_known(mix) && gpu_ns > 0 ? gpu_ns / static_cast<double>(mix.kernels) : typical_turn_ns;
    asked.push_back({mix.busy, std::pow(turn_ns, constants.turn_weight)});
  }
  return slowdowns_by_shares(asked, constants, std::vector<double>(mixes.size(), 1), least);
}

struct Turn {
  double ns = 0;
  double multiprocessors = 1;  // the share that it uses, during the turn
};

// A turn is a kernel. A kernel with more blocks than the multiprocessors hold may have a turn for each wave.
Turn mps_turn(const KernelMix& mix, const MpsConstants& constants) {
  const auto kernels = static_cast<double>(mix.kernels), waves = static_cast<double>(std::max(mix.waves, mix.kernels));
  const double gpu_ns = mix.busy * mix.step_ns, held = std::max(mix.sm_active, mix.warps);
  const double blocks_ns =
      kernels > 0 && gpu_ns > 0 ? gpu_ns / (kernels + constants.wave_ends_turn * (waves - kernels)) : constants.typical_turn_ns;
  return {blocks_ns + constants.launches_ns, mix.busy > 0 && held > 0 ? std::min(1.0, held / mix.busy) : 1.0};
}

// A job releases the card when its time slice is over, or earlier at the end of its step, because its host then waits for the loss or the
// next batch.
Turn slice_turn(const KernelMix& mix, const SliceConstants& constants) {
  const double gpu_ns = mix.busy * mix.step_ns;
  if (gpu_ns <= 0) return {constants.slice_ns, 1};
  return {1 / (1 / std::max(gpu_ns, constants.least_step_ns) + 1 / constants.slice_ns), 1};
}

// The highest demand on any part of the card. Above 1: the jobs together need more of that part than the card has, so each of them waits.
double highest_demand(std::span<const KernelMix> mixes, bool with_warps) {
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

// Jobs take turns. A job that needs the card during a neighbour's turn waits until that turn is over. So a job waits, in each of its turns,
// for one turn of every neighbour that has kernels then, and jobs with short turns lose most. Every slowdown is at least `least`.
template <class Constants>
std::vector<Slowdown> slowdowns_by_turns(std::span<const KernelMix> mixes, const Constants& constants,
                                         Turn (*turn_of_job)(const KernelMix&, const Constants&), double least) {
  constexpr int kRounds = 1;  // slower jobs have kernels for a larger share of the time; a second round usually changes less than 1 %
  struct Waiting {
    double busy, turn_ns, cost_ns;  // cost_ns: of a turn, for a neighbour that meets it
    double asked_ns;                // cost_ns, times the share of the job's time with kernels
    double slowdown;
  };
  std::vector<Waiting> jobs;
  jobs.reserve(mixes.size());
  for (const KernelMix& mix : mixes) {
    const Turn turn = turn_of_job(mix, constants);
    const double cost_ns = constants.cost * turn.multiprocessors * turn.ns;
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

// Each job has its own multiprocessors. Jobs slow each other only if their sum exceeds the card, and then all equally.
std::vector<Slowdown> slowdowns_with_limits(std::span<const KernelMix> mixes, double least_loss) {
  const double asked = highest_demand(mixes, true);
  double busy = 0;
  for (const KernelMix& mix : mixes) busy += mix.busy;
  std::vector<Slowdown> out;
  out.reserve(mixes.size());
  for (const KernelMix& mix : mixes) {
    const double by_limits = slowdown_by_limits(mix);
    const double expected = std::max({1.0, by_limits, asked});
    // The upper end: all kernels run one after another, and each waits for the neighbours' kernels.
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
  if (mode == SharingMode::timeslice && gpu.compute_major < 7)
    return slowdowns_by_turns(mixes, constants.slices_until_pascal, slice_turn, 1);
  if (mode == SharingMode::timeslice) return slowdowns_in_slices(mixes, constants.slices_since_volta);
  // Warps take turns, so a sum of warps above the card slows no job.
  const double least = highest_demand(mixes, false);
  if (mode == SharingMode::mps && gpu.compute_major < 8) return slowdowns_by_turns(mixes, constants.mps, mps_turn, least);
  if (mode == SharingMode::mps) return slowdowns_on_shared_card(mixes, constants.mps_since_ampere, constants.mps.typical_turn_ns, least);
  return slowdowns_with_limits(mixes, constants.mps_limits_least_loss);
}

}  // namespace gpucast::pack

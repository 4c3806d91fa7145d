// A job as packing sees it: what it needs of a card, and for how long. Where the figures come from (a capture, a table) does not matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/gpu.h"
#include "src/pack/kernel_mix.h"

namespace gpucast::pack {

// What a job is on a type of card.
struct Figures {
  double step_ns = 0;         // alone on the card
  int64_t request_bytes = 0;  // of each card: all that the device loses to it, at its upper bound, the process's context included
  double occupancy = 1;       // achieved, over the kernels' time: 0 to 1
  double sm_active = 1;       // share of multiprocessors with a block, over the step
  double nvml_utilization = 1;
  std::optional<KernelMix> mix;
};

struct Job {
  std::string name;
  int64_t arrival_ns = 0;
  int64_t steps = 1;
  int cards = 1;                                         // a gang: all at once, or none; all of one type
  Figures figures;                                       // on any card that `by_card` does not have
  std::vector<std::pair<std::string, Figures>> by_card;  // by Gpu::id
  std::vector<std::string> command;                      // what starts it; empty: not known
  bool only_listed = false;                              // it runs on no other card than those of `by_card`

  // nullptr: it does not run on such a card.
  const Figures* on(const std::string& gpu_id) const {
    for (const auto& [id, listed] : by_card)
      if (id == gpu_id) return &listed;
    return only_listed ? nullptr : &figures;
  }
};

// The mix, or one that follows from the other figures: nothing is known then of bandwidth and bus.
KernelMix mix_of(const Figures& figures);

}  // namespace gpucast::pack

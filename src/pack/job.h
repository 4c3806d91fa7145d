// A job for packing: its needs on a card and its length. Its figures may come from a capture or a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/gpu.h"
#include "src/pack/kernel_mix.h"

namespace gpucast::pack {

// A job's figures on a type of card.
struct Figures {
  double step_ns = 0;         // alone on the card
  int64_t request_bytes = 0;  // on each card: the upper bound of all device memory that the job needs, with its process's context
  double occupancy = 1;       // achieved, over the kernels' time: 0 to 1
  double sm_active = 1;       // share of multiprocessors with a block, over the step
  double nvml_utilization = 1;
  std::optional<KernelMix> mix;
};

struct Job {
  std::string name;
  int64_t arrival_ns = 0;
  int64_t steps = 1;
  int cards = 1;                                         // more than 1: a gang, which starts on all its cards at once; they have one type
  Figures figures;                                       // on cards that `by_card` does not list
  std::vector<std::pair<std::string, Figures>> by_card;  // by Gpu::id
  std::vector<std::string> command;                      // the command that starts it; empty: not known
  bool only_listed = false;                              // it runs only on cards that `by_card` lists

  // nullptr: the job does not run on this card.
  const Figures* figures_on(const std::string& gpu_id) const {
    for (const auto& [id, listed] : by_card)
      if (id == gpu_id) return &listed;
    return only_listed ? nullptr : &figures;
  }
};

// The job's mix, or one estimated from its other figures, without bandwidth and bus.
KernelMix kernel_mix_of(const Figures& figures);

}  // namespace gpucast::pack

// How much jobs on one card slow each other.
#pragma once

#include <span>
#include <vector>

#include "gpucast/gpu.h"
#include "src/pack/kernel_mix.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {

// A step's time beside its neighbours over its time alone on the whole card: 1 or more. 9 of 10 lie between low and high.
struct Slowdown {
  double low = 1, expected = 1, high = 1;
};

// Of all jobs that share the card, in their order; of one alone it is 1 unless its limits slow it. The order does not matter, and a further
// neighbour never makes another faster. Time slices go by the card's architecture. SharingMode::mig: `mixes` have slices of their own, and
// only those matter.
std::vector<Slowdown> slowdowns(std::span<const KernelMix> mixes, const Gpu& gpu, SharingMode mode);

}  // namespace gpucast::pack

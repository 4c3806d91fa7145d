// How much the jobs on one card slow each other.
#pragma once

#include <span>
#include <vector>

#include "gpucast/gpu.h"
#include "src/pack/constants.h"
#include "src/pack/kernel_mix.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {

// A step's time with neighbours over its time alone on the whole card: 1 or more. 90 % of measured values are between low and high.
struct Slowdown {
  double low = 1, expected = 1, high = 1;
};

// The slowdown of each job that shares the card, in the order of `mixes`; the order changes no value. A job alone has 1 unless its limits
// slow it. One more neighbour never makes a job faster. Time slices depend on the card's architecture. SharingMode::mig: each job has its
// own slice, and only the slice slows it.
std::vector<Slowdown> slowdowns(std::span<const KernelMix> mixes, const Gpu& gpu, SharingMode mode,
                                const PackConstants& constants = pack_constants());

}  // namespace gpucast::pack

// What an observed step asks of a card's parts: what packing needs to know of a neighbour.
#pragma once

#include "gpucast/gpu.h"
#include "gpucast/job_occupancy.h"
#include "gpucast/trace.h"
#include "src/pack/kernel_mix.h"

namespace gpucast {

// `occupancy`: of the same capture on the same card. Throws Error as step_operations() and card_rates() do.
pack::KernelMix kernel_mix(const Trace& trace, const Gpu& gpu, const CardOccupancy& occupancy);

}  // namespace gpucast

// What an observed step asks of a card's parts: what packing needs to know of a neighbour.
#pragma once

#include "gpucast/gpu.h"
#include "gpucast/job_occupancy.h"
#include "src/pack/kernel_mix.h"
#include "src/work/step_operations.h"

namespace gpucast {

// `occupancy`: of the same step on the same card. Throws Error where the card has no rates.
pack::KernelMix kernel_mix(const StepOperations& step, const Gpu& gpu, const CardOccupancy& occupancy);

}  // namespace gpucast

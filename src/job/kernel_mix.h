// What an observed step asks of a card's parts: what packing needs to know of a neighbour.
#pragma once

#include "gpucast/job_occupancy.h"
#include "src/pack/kernel_mix.h"
#include "src/work/step_operations.h"

namespace gpucast {

// `occupancy`: of the same step, as job_occupancy() gives it for a card.
pack::KernelMix kernel_mix(const StepOperations& step, const CardOccupancy& occupancy);

}  // namespace gpucast

// How much an observed step uses each part of a card. Packing needs it to predict how neighbours slow each other down.
#pragma once

#include "gpucast/job_occupancy.h"
#include "src/pack/kernel_mix.h"
#include "src/work/step_operations.h"

namespace gpucast {

// `occupancy`: of the same step, as job_occupancy() gives it for a card.
pack::KernelMix kernel_mix(const StepOperations& step, const CardOccupancy& occupancy);

}  // namespace gpucast

// A job's figures on a card, as packing needs them.
#pragma once

#include "gpucast/job_occupancy.h"
#include "src/pack/job.h"
#include "src/predict/analysis.h"

namespace gpucast {

// Memory as `gpucast analyze` says to request it, step time and occupancy as `gpucast occupancy` has them. `occupancy`: of the same capture
// on the analysis' card. Throws Error where no step was observed or the card has no rates.
pack::Figures packing_figures(const Analysis& analysis, const CardOccupancy& occupancy);

}  // namespace gpucast

// A job's figures on a card, as packing needs them.
#pragma once

#include "gpucast/job_occupancy.h"
#include "src/pack/job.h"
#include "src/predict/analysis.h"

namespace gpucast {

// Memory is the request of `gpucast analyze`; step time and occupancy come from `gpucast occupancy`. `occupancy`: of the same capture on
// the analysis' card. Throws Error if no step was observed or the card has no rates.
pack::Figures packing_figures(const Analysis& analysis, const CardOccupancy& occupancy);

}  // namespace gpucast

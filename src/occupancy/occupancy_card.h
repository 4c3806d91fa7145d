// The figures of a card in the device table that occupancy needs.
#pragma once

#include "src/occupancy/occupancy.h"

namespace gpucast {

struct Gpu;

// Throws Error for a compute capability without rules.
OccupancyCard occupancy_card(const Gpu& gpu);

}  // namespace gpucast

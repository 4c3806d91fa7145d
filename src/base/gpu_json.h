// A card's figures as JSON, the same in `gpucast gpus --format json` and in a capture's header.
#pragma once

#include "gpucast/gpu.h"
#include "src/base/json.h"

namespace gpucast {

// Appends the figures after the card's name and capability: multiprocessors to peak rates, under the names of struct Gpu.
void add_gpu_figures(const Gpu& gpu, Json* row);

}  // namespace gpucast

// What recomputing each module of a class saves and costs, from a capture without checkpoints and one with all of them.
#pragma once

#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "src/predict/facts.h"
#include "src/search/knapsack.h"

namespace gpucast::search {

// In the order in which the modules first run with gradients, by which the what-if "checkpoint:Block=0-3,7" numbers them. saved_bytes:
// activations alive at the end of forward, less those that are left with all of them recomputed. cost_ns: the GPU's time of a step's
// forward.
std::vector<Recomputed> recomputed_modules(const Facts& without, const Facts& with_all, const std::string& type, const Gpu& gpu);

// {0, 1, 2, 7} -> "0-2,7"
std::string ranges_text(const std::vector<size_t>& numbers);

}  // namespace gpucast::search

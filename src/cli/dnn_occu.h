// `gpucast occupancy --method dnn-occu`: a network's estimate, in addition to the computed value.
#pragma once

#include <string>
#include <vector>

#include "gpucast/gpu.h"

namespace gpucast::cli {

// `path`, or gpucast's own weights if it is empty. Throws Error when they cannot be read.
std::string dnn_occu_weights(const std::string& path);

// For each card, the mean occupancy (0 to 1) of a forward's kernels. The file `graph` has the forward's graph. Runs
// python/dnn_occu/predict.py in the Python that recorded the graph. Throws Error when no graph was recorded, the weights do not fit, or the
// Python cannot run it.
std::vector<double> dnn_occu(const std::string& graph, const std::string& weights, const std::vector<Gpu>& gpus);

}  // namespace gpucast::cli

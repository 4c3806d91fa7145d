// `gpucast occupancy --method dnn-occu`: a network's guess beside what is computed.
#pragma once

#include <string>
#include <vector>

#include "gpucast/gpu.h"

namespace gpucast::cli {

// `path`, or the weights that come with gpucast. Throws Error: they cannot be read.
std::string dnn_occu_weights(const std::string& path);

// Mean occupancy of the kernels of the forward whose graph is in the file `graph`, one a card, from 0 to 1: python/dnn_occu/predict.py, in
// the Python that recorded the graph. Throws Error: no graph was recorded, these are no weights of it, its Python cannot run it.
std::vector<double> dnn_occu(const std::string& graph, const std::string& weights, const std::vector<Gpu>& gpus);

}  // namespace gpucast::cli

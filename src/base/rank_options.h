#pragma once

#include <cstdint>
#include <string>

namespace gpucast {

// The options of a run for its cards and ranks: "", " --gpus 4", " --gpus 8 --world-size 64 --ranks 0". 0 and "": not given.
std::string rank_options(int64_t gpus, int64_t world_size, const std::string& ranks);

}  // namespace gpucast

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpucast {

// The options of a run for its cards and ranks, as words: none, {"--gpus", "4"}, {"--gpus", "8", "--world-size", "64", "--ranks", "0"}.
// 0 and "": not given.
std::vector<std::string> rank_words(int64_t gpus, int64_t world_size, const std::string& ranks);

// The same as a text: "", " --gpus 4".
std::string rank_options(int64_t gpus, int64_t world_size, const std::string& ranks);

}  // namespace gpucast

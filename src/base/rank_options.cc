#include "src/base/rank_options.h"

namespace gpucast {

std::vector<std::string> rank_words(int64_t gpus, int64_t world_size, const std::string& ranks) {
  std::vector<std::string> out;
  if (gpus > 0) out.insert(out.end(), {"--gpus", std::to_string(gpus)});
  if (world_size > 0) out.insert(out.end(), {"--world-size", std::to_string(world_size)});
  if (!ranks.empty()) out.insert(out.end(), {"--ranks", ranks});
  return out;
}

std::string rank_options(int64_t gpus, int64_t world_size, const std::string& ranks) {
  std::string out;
  for (const std::string& word : rank_words(gpus, world_size, ranks)) out += " " + word;
  return out;
}

}  // namespace gpucast

#include "src/base/rank_options.h"

#include <fmt/core.h>

namespace gpucast {

std::string rank_options(int64_t gpus, int64_t world_size, const std::string& ranks) {
  std::string out;
  if (gpus > 0) out += fmt::format(" --gpus {}", gpus);
  if (world_size > 0) out += fmt::format(" --world-size {}", world_size);
  if (!ranks.empty()) out += " --ranks " + ranks;
  return out;
}

}  // namespace gpucast

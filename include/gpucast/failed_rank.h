// Another rank of the same job that did not finish.
#pragma once

#include <cstdint>
#include <string>

namespace gpucast {

struct FailedRank {
  int64_t rank = 0;
  std::string what;  // "raised ValueError: bad batch", "died before its capture was written"
};

}  // namespace gpucast

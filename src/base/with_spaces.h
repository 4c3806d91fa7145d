// Names of JSON fields as people read them.
#pragma once

#include <algorithm>
#include <string>

namespace gpucast {

// "model_to_device": "model to device"
inline std::string with_spaces(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace gpucast

#include "src/base/layer_names.h"

#include <fmt/core.h>

#include <algorithm>

namespace gpucast {

std::string without_layer(std::string_view name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find_first_of(". ", begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos) {
      return fmt::format("{}*{}", name.substr(0, begin), name.substr(end));
    }
    begin = end + 1;
  }
  return std::string(name);
}

}  // namespace gpucast

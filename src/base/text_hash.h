#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace gpucast {

// For unordered containers with keys of std::string: looks up a text without making a std::string of it. Needs std::equal_to<> as well.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

}  // namespace gpucast

// Functions for tests of the profile reader, in addition to gpucast/profile.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gpucast/profile.h"

namespace gpucast {

// Same as read_profile(path), with a window of `window_bytes` of text.
ProfileTrace read_profile(const std::string& path, size_t window_bytes);

// A JSON number times 10^shift as an integer, computed without a double. Halves are rounded away from zero. Nothing when `text` is no
// number, or the result is not below 4.6e18.
std::optional<int64_t> parse_scaled(std::string_view text, int shift);

}  // namespace gpucast

// What the tests of the profile reader need beside gpucast/profile.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gpucast/profile.h"

namespace gpucast {

// As read_profile(path), `window_bytes` of text at a time.
ProfileTrace read_profile(const std::string& path, size_t window_bytes);

// A JSON number times 10^shift as an integer, without going through a double: half a unit and more rounds up (away from
// zero). Nothing where it is no number or not below 4.6e18.
std::optional<int64_t> parse_scaled(std::string_view text, int shift);

}  // namespace gpucast

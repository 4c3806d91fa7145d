// Text that must be a number as a whole: "64", not "64x" or " 64".
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace gpucast {

template <class Number>
std::optional<Number> to_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace gpucast

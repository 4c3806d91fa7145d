// Where a byte of a text is, as an editor shows it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace gpucast {

// "line 3, column 5", both from 1.
inline std::string text_place(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", lines + 1, before.size() - line_begin + 1);
}

}  // namespace gpucast

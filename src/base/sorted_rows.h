// Tables of rows with a `name`, sorted by it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace gpucast {

template <class Row, size_t count>
constexpr bool has_sorted_names(const std::array<Row, count>& rows) {
  return std::ranges::is_sorted(rows, {}, &Row::name) && std::ranges::adjacent_find(rows, {}, &Row::name) == rows.end();
}

// nullptr: there is no such row.
template <class Row, size_t count>
const Row* find_row(const std::array<Row, count>& rows, std::string_view name) {
  const auto found = std::ranges::lower_bound(rows, name, {}, &Row::name);
  return found != rows.end() && found->name == name ? &*found : nullptr;
}

}  // namespace gpucast

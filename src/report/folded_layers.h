// Rows of modules that differ only by the number of their layer, as one row: "blocks.*.mlp.fc1 (Linear) x 24".
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/layer_names.h"

namespace gpucast {

// `key(row)`: rows are joined only if it is equal, too. `add(row, &sum)` adds the figures. The rows keep the order of their first ones.
template <class Row, class Key, class Add>
std::vector<Row> folded_layers(const std::vector<Row>& rows, Key key, Add add) {
  std::vector<Row> out;
  std::vector<int64_t> counts;
  std::map<std::pair<std::string, decltype(key(rows.front()))>, size_t> places;
  for (const Row& row : rows) {
    const auto [place, fresh] = places.try_emplace({without_layer(row.name), key(row)}, out.size());
    if (fresh) {
      out.push_back(row);
      counts.push_back(1);
    } else {
      add(row, &out[place->second]);
      ++counts[place->second];
    }
  }
  for (const auto& [folded, at] : places) {
    if (counts[at] > 1) out[at].name = fmt::format("{} x {}", folded.first, counts[at]);
  }
  return out;
}

}  // namespace gpucast

#include "src/cli/columns.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace gpucast::cli {

void print_columns(const std::vector<Column>& columns, TextWriter* out) {
  std::vector<const Column*> shown;
  std::vector<size_t> widths;
  for (const Column& column : columns) {
    if (std::ranges::all_of(column.cells, [](const std::string& cell) { return cell.empty(); })) continue;
    size_t most = width(column.title);
    for (const std::string& cell : column.cells) most = std::max(most, width(cell));
    shown.push_back(&column);
    widths.push_back(most);
  }
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (size_t i = 0; i < shown.size(); ++i) {
      const std::string word = cell_of(*shown[i]), blanks(widths[i] - width(word), ' ');
      text += "  " + (shown[i]->left ? word + blanks : blanks + word);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  };
  if (shown.empty()) return;
  out->line(out->bold(line([](const Column& column) { return column.title; })));
  for (size_t row = 0; row < shown.front()->cells.size(); ++row) out->line(line([&](const Column& column) { return column.cells[row]; }));
}

std::string amount_text(double amount) {
  constexpr const char* kUnits[] = {"", " k", " M", " B", " T"};
  constexpr double kThousand = 1000;
  size_t unit = 0;
  while (amount >= kThousand && unit + 1 < std::size(kUnits)) {
    amount /= kThousand;
    ++unit;
  }
  return fmt::format("{:.4g}{}", amount, kUnits[unit]);
}

}  // namespace gpucast::cli

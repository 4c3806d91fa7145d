// A table of texts, for reports whose columns depend on what is known.
#pragma once

#include <string>
#include <vector>

#include "src/report/text_writer.h"

namespace gpucast::cli {

struct Column {
  std::string title;
  std::vector<std::string> cells;
  bool left = false;  // aligned
};

// Without columns that have no text.
void print_columns(const std::vector<Column>& columns, TextWriter* out);

std::string amount_text(double amount);  // "1.28 M"

}  // namespace gpucast::cli

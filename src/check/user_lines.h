// Which line of the user's program requested a module's memory.
#pragma once

#include <optional>
#include <string>

#include "gpucast/diff.h"
#include "src/predict/analysis.h"

namespace gpucast::check {

// The line that requested the largest block that the row's modules hold at the peak: "train.py:17 main". "": no block has one.
std::string user_line(const Analysis& analysis, const DiffRow& row);

// A frame's parts.
struct SourceLine {
  std::string file;
  int64_t line = 0;
};
std::optional<SourceLine> source_line(const std::string& frame);

// `path` from `folder`, if it is below it; else as it is.
std::string relative_to(const std::string& path, const std::string& folder);

}  // namespace gpucast::check

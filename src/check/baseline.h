// The committed baseline (docs/reference/check.md): each job's figures on each of its cards.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/check/figures.h"

namespace gpucast::check {

using CardBaselines = std::map<std::string, CardFigures>;  // by card

struct Baseline {
  bool exists = false;
  std::string gpucast;                        // the version that wrote it
  std::map<std::string, CardBaselines> jobs;  // by the job's name

  const CardFigures* find(const std::string& job, const std::string& gpu) const;
};

// A file that does not exist is an empty baseline. Throws Error for one that cannot be read.
Baseline read_baseline(const std::string& path);
Baseline parse_baseline(std::string_view text, const std::string& path);

// One line for each module, so that a diff of two baselines says what changed.
std::string baseline_text(const Baseline& baseline);

}  // namespace gpucast::check

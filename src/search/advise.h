// Finds the fastest configuration of a script that fits a card, and the front of memory against time. Each answer is a run that was made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpucast/advise.h"
#include "src/search/run_spec.h"
#include "src/search/runs.h"

namespace gpucast::search {

struct AdviseQuestion {
  RunSpec as_it_is;                  // the script, the card and what-ifs that stay
  std::vector<std::string> allowed;  // kinds of what-ifs that change the mathematics, or take long, and may be tried
  int64_t most_runs = 0;             // 0: no limit
  double most_seconds = 0;           // no run is begun that would probably end later; 0: no limit
};

// A moment of the search, for a progress line.
struct AdviseProgress {
  int64_t runs = 0;
  double seconds = 0;
  std::string latest;        // "micro-batch:2, checkpoint:Block"
  const AdvisedPoint* best;  // so far; null: none fits yet
};

// Throws Error: the script as it is cannot be run. Throws Interrupted.
Advice advise(const AdviseQuestion& question, RunsOptions options, const std::function<void(const AdviseProgress&)>& on_progress);

}  // namespace gpucast::search

// The largest value that fits: a search over captures, with interpolation, for several cards at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/fit.h"
#include "gpucast/gpu.h"
#include "src/search/runs.h"
#include "src/search/vary.h"

namespace gpucast::search {

struct FitQuestion {
  RunSpec spec;  // without a card
  Vary vary;
  std::vector<int64_t> values;  // the candidates, rising
  std::vector<Gpu> cards;
  double confidence = 0;
  std::function<RunSpec(const RunSpec& spec, int64_t value)> with;  // the command with this value
};

// The script fails, whatever the value is.
struct ScriptFails : Error {
  using Error::Error;
};

// Cards of one compute capability share their runs. Throws ScriptFails when no value could be run, Error when memory does not depend on the
// value, and what Runs::run throws.
Fit find_fit(const FitQuestion& question, Runs* runs);

}  // namespace gpucast::search

// A run that was made for a search.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/run/batch_job.h"
#include "src/search/run_spec.h"

namespace gpucast::search {

// How a run ended. captured: its captures can be judged. failed: `problem` says why.
enum class RunEnd : uint8_t { captured, out_of_memory, failed };

struct Run {
  RunSpec spec;
  RunEnd end = RunEnd::failed;
  std::vector<std::string> captures;       // paths, the lowest rank first; of one that ran out of memory, until then
  std::optional<run::JobProblem> problem;  // if not captured
  std::string printed;                     // the end of the script's output, if not captured
  bool cached = false;
  double seconds = 0;
};

}  // namespace gpucast::search

// `gpucast check`: runs the jobs of a gpucast.toml and judges each by its limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/check/config.h"
#include "src/check/result.h"

namespace gpucast::check {

struct CheckOptions {
  std::vector<std::string> only;  // names of jobs; empty: all
  bool update_baseline = false;
  bool fresh = false;     // no run from the cache
  int64_t at_a_time = 0;  // runs; 0: what processors and memory allow
};

// A job that fails is a result. Throws Error when the baseline cannot be read or written or no job has a name of `only`, and
// search::Interrupted. With update_baseline the baseline is written when all jobs have figures, and growth breaks no limit.
CheckResult check(const Config& config, const CheckOptions& options);

}  // namespace gpucast::check

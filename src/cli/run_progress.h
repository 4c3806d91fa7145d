// One line on a terminal that says how many runs a search has made.
#pragma once

#include <unistd.h>

#include <cstdio>

#include "src/search/runs.h"

namespace gpucast::cli {

class RunProgress {
 public:
  RunProgress() = default;
  ~RunProgress() {
    if (shown_ && made_ + cached_ > 0) std::fprintf(stderr, "\r\033[K");
  }
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  void run_ended(const search::Run& run) {
    ++(run.cached ? cached_ : made_);
    if (shown_) std::fprintf(stderr, "\r\033[Kgpucast: %d runs, %d more from the cache", made_, cached_);
  }

 private:
  const bool shown_ = isatty(STDERR_FILENO) != 0;
  int made_ = 0, cached_ = 0;
};

}  // namespace gpucast::cli

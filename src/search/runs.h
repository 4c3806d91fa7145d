// Runs for a search: each is one `gpucast run`, several at a time and in a Python that has imported PyTorch already (`gpucast batch`). A
// run that was made before, by an interrupted search too, comes from a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/predict/facts.h"
#include "src/search/run.h"
#include "src/search/run_spec.h"

namespace gpucast::search {

struct Interrupted {};

struct RunsOptions {
  std::string cache_folder;                    // "": the user's, see default_cache_folder()
  bool fresh = false;                          // do not look into the cache
  int64_t at_a_time = 0;                       // 0: as `gpucast batch` chooses
  std::function<void(const Run& run)> on_end;  // after each; may be empty
};

class Runs {
 public:
  explicit Runs(RunsOptions options);
  ~Runs();  // ends what still runs
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  // In the order of `specs`; equal ones run once. Where none ends for half a minute, a line on standard error says that they go on. A run
  // that fails is a result; one whose network port was taken, as by another run, is made again alone, and from then on runs take turns.
  // Throws Interrupted (Ctrl-C: everything that was started is ended, and what is done stays in the cache) and Error (the cache cannot be
  // written).
  std::vector<Run> run(const std::vector<RunSpec>& specs);
  Run run(const RunSpec& spec) { return run(std::vector{spec}).front(); }

 private:
  class Batch;

  RunsOptions options_;
  std::unique_ptr<Batch> batch_;
  bool take_turns_ = false;  // two runs at a time wanted one network port
};

// The followed captures of a run that was captured, the lowest rank first. Throws Error when a file is damaged.
std::vector<std::shared_ptr<const Facts>> facts_of(const Run& run);

// $XDG_CACHE_HOME/gpucast/runs or ~/.cache/gpucast/runs; "" if there is neither.
std::string default_cache_folder();

}  // namespace gpucast::search

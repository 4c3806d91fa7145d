// One `gpucast run` that a search asks for: everything that decides its capture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/run/batch_job.h"

namespace gpucast::search {

struct RunSpec {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;  // changes of ours; no value: removed
  std::string folder = ".";
  std::string gpu;    // the card it runs on
  std::string steps;  // "": the default of `gpucast run`
  std::vector<std::string> what_ifs;
  int64_t gpus = 0, world_size = 0;  // 0: the default of `gpucast run`
  std::string ranks;                 // "": the same
  double timeout_s = 0;              // 0: none
  bool enforce_capacity = false;
};

// " --gpus 2 --world-size 8 --ranks 0,1", of `gpucast run`; "": one process on one card, or its launcher starts the ranks.
std::string rank_options(const RunSpec& spec);

// As a job of `gpucast batch`, without a name. Its capture replaces the file `output`.
run::Job job_of(const RunSpec& spec, const std::string& output);

// The line that the user can paste: "gpucast run --gpu l4 -- python train.py --batch 8".
std::string run_line(const RunSpec& spec);
// The same for the step's time: "gpucast time --gpu l4 -- python train.py --batch 8". It takes no what-ifs, and only a number of steps.
std::string time_line(const RunSpec& spec);

}  // namespace gpucast::search

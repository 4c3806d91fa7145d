// The input of `time` and `occupancy`: a capture with an observed step, or a command that makes one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "src/cli/arguments.h"
#include "src/predict/facts.h"

namespace gpucast::cli {

struct StepSource {
  std::vector<std::string> what;  // capture files of one job, or a command
  std::string gpus;               // "a100-80,h200", "all"; "": the capture's
  int64_t steps = 3;
  std::string graph;  // for a command: the graph of its first forward is written to this file; "": not needed
  bool measure_loader = false;
  bool leaves_no_files = false;              // of a command: it starts again later, and finds the files as they are now
  bool all_ranks = false;                    // the result has all captured ranks of the job
  int64_t gpus_of_node = 0, world_size = 0;  // of a command; 0: as `gpucast run` has it
  std::string ranks;                         // of a command
};
void declare_step_source(Arguments& arguments, StepSource* source);

// Whether `what` names captures, and no command.
bool names_captures(const StepSource& source);

struct StepOnCards {
  std::shared_ptr<const Facts> facts;                // of the lowest captured rank
  std::vector<std::shared_ptr<const Facts>> others;  // of the job's other captured ranks
  std::vector<Gpu> gpus;
};
// Reads the capture, or runs the command like `gpucast run`. The memory report is not shown, and its verdict does not matter: an observed
// step is enough. Unset: interrupted. Throws Error when there is no capture.
std::optional<StepOnCards> observe_step(const StepSource& source);

// "a100-80,h200": each card once, in this order. "all": every card of the table.
std::vector<Gpu> cards_of(const std::string& names);

// The card named in a text like "a100-80"; the default one for "". Throws Error with the text `one` when several are named: "--launches is
// for one card".
const Gpu& one_card(const std::string& gpus, const char* one);

// The text of a file of constants. "": of the user's own file, if `calibrate` wrote one.
std::string read_constants(std::string path);

}  // namespace gpucast::cli

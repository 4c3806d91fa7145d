// What `time` and `occupancy` look at: a capture whose step was observed, or a command that makes one.
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
  std::vector<std::string> what;  // a capture file, or a command
  std::string gpus;               // "a100-80,h200", "all"; "": the capture's
  int64_t steps = 3;
  std::string graph;  // of a command: its first forward's graph is written there; "": it is not wanted
  bool measure_loader = false;
};
void declare_step_source(Arguments& arguments, StepSource* source);

struct StepOnCards {
  std::shared_ptr<const Facts> facts;
  std::vector<Gpu> gpus;
};
// Reads the capture, or runs the command as `gpucast run` does. Its report of memory is not shown: whatever its verdict, a step that was
// observed can be told of. Unset: interrupted. Throws Error where there is no capture.
std::optional<StepOnCards> observe_step(const StepSource& source);

// The card named in "a100-80"; of "", the default one. Throws Error with `one` where it is several: "--launches is for one card".
const Gpu& one_card(const std::string& gpus, const char* one);

// The text of a file of constants; "": of the user's own, if `calibrate` left one.
std::string read_constants(std::string path);

}  // namespace gpucast::cli

// Where the script was when it captured the work of CUDA graphs. A replay runs no module, so only the capture knows.
#pragma once

#include <optional>
#include <vector>

#include "gpucast/trace.h"
#include "src/attribution/attribution.h"

namespace gpucast {

struct CapturedPlace {
  Phase phase = Phase::other;
  ModuleId module;
};

// For each piece of work of the observed step. Unset: no graph launched it, or it was captured outside of a training step's phases.
std::vector<std::optional<CapturedPlace>> captured_places(const Trace& trace);

}  // namespace gpucast

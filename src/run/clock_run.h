// `gpucast run --real-time` and `--warp`: the script on the card's clock.
#pragma once

#include <string>
#include <vector>

#include "src/run/run_capture.h"

namespace gpucast::cli {

// First a capture, of which nothing is shown unless it fails; then the command as it is, to its own end, with its own standard streams.
// Returns the command's exit code (128 + signal), or kExitInterrupted; throws Error where there is no capture.
int run_with_clock(const RunSettings& settings, bool warp);

}  // namespace gpucast::cli

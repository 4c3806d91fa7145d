// `gpucast run --real-time` and `--warp`: the script on the card's clock.
#pragma once

#include <string>

#include "src/run/run_session.h"

namespace gpucast::run {

// First a capture, of which nothing is shown unless it fails; then the command as it is, to its own end, with its own standard streams.
// Returns the command's exit code (128 + signal), or kExitInterrupted; throws Error where there is no capture. `constants_json`: of time,
// over the built-in ones; "": none.
int run_with_clock(const RunSettings& settings, bool warp, const std::string& constants_json);

}  // namespace gpucast::run

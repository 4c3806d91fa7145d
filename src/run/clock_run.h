// `gpucast run --real-time` and `--warp`: the script on the card's clock.
#pragma once

#include <string>

#include "src/run/run_session.h"

namespace gpucast::run {

// First captures the command; nothing is shown unless that fails. Then runs the unchanged command to its own end, with its own standard
// streams. Returns the command's exit code (128 + signal), or kExitInterrupted. Throws Error if there is no capture. `constants_json`:
// constants of time that replace built-in ones; "": none.
int run_with_clock(const RunSettings& settings, bool warp, const std::string& constants_json);

}  // namespace gpucast::run

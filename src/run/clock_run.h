// `gpucast run --real-time` and `--warp`: the script on the card's clock.
#pragma once

#include <string>

#include "src/run/run_session.h"

namespace gpucast::run {

struct ClockedRun {
  int exit_code = 0;   // the command's (128 + signal)
  std::string record;  // with settings.whole_run: what the first process that trained wrote; "": none did
};
// Runs the unchanged command to its own end on a clock, with its own standard streams; with settings.whole_run its output goes to standard
// error. `constants_json`: constants of time that replace built-in ones; "": none. Throws Error if the command cannot start.
ClockedRun run_with_clock(const RunSettings& settings, bool warp, const std::string& constants_json);

}  // namespace gpucast::run

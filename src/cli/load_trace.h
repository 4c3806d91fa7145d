// A capture, a memory snapshot or a profiler trace, whichever a file is.
#pragma once

#include <optional>
#include <string>

#include "gpucast/trace.h"
#include "src/orchestrate/rules.h"

namespace gpucast::cli {

// `gpu`: the card that a profiler trace is turned into a capture for; unset: the default one. `device`: see read_trace().
// Throws Error.
Trace load_trace(const std::string& path, std::optional<int> device, const std::optional<std::string>& gpu,
                 const OrchestrateOptions& profile_options = {});

// Throws Error unless `release` is "" or looks like one of PyTorch: "2.6.0".
void check_torch_version(const std::string& release);

}  // namespace gpucast::cli

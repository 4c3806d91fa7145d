// Reads any file that `gpucast replay` accepts -> a History.
#pragma once

#include <optional>
#include <string>

#include "gpucast/history.h"
#include "gpucast/trace.h"

namespace gpucast {

struct LoadedHistory {
  History history;
  std::optional<Trace> trace;  // the file's other content, for captures and snapshots
};

// The file's content decides its type, not its name. `device`: the GPU to read from a snapshot. Throws Error.
LoadedHistory load_history(const std::string& path, std::optional<int> device);

}  // namespace gpucast

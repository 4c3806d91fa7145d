// Whatever file `gpucast replay` is given -> a History.
#pragma once

#include <optional>
#include <string>

#include "gpucast/history.h"
#include "gpucast/trace.h"

namespace gpucast {

struct LoadedHistory {
  History history;
  std::optional<Trace> trace;  // captures and snapshots: what else the file says
};

// The content decides, not the name. `device`: which GPU of a snapshot. Throws Error.
LoadedHistory load_history(const std::string& path, std::optional<int> device);

}  // namespace gpucast

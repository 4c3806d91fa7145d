// A memory snapshot of PyTorch (docs/reference/snapshots.md) -> Trace.
#pragma once

#include <optional>
#include <string>

#include "gpucast/trace.h"

namespace gpucast {

bool looks_like_snapshot(const std::string& path);

// See read_trace().
Trace read_snapshot(const std::string& path, std::optional<int> device);

}  // namespace gpucast

// A memory snapshot of PyTorch (docs/reference/snapshots.md) -> Trace.
#pragma once

#include <optional>
#include <string>

#include "gpucast/trace.h"

namespace gpucast {

// The file name of the frame that `gpucast export` puts in front of a stack, to say what the block is for. Left out when read.
inline constexpr const char* kOwnFrame = "gpucast";

bool looks_like_snapshot(const std::string& path);

// See read_trace().
Trace read_snapshot(const std::string& path, std::optional<int> device);

}  // namespace gpucast

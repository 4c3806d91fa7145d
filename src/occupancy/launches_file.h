// Launches as JSON lines: one object a line. docs/reference/occupancy.md.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/occupancy/occupancy.h"

namespace gpucast {

struct LaunchRow {
  KernelResources kernel;
  Launch launch;
};

// One line: {"blocks": 576, "block_threads": 64, "registers": 126, "static_shared_bytes": 8192, "dynamic_shared_bytes": 0}; the sizes of
// shared memory may be missing. `where`: the line's place in the file, for the Error of a line that is no launch. At least 64 bytes after
// the end of `line` must be readable.
LaunchRow read_launch(std::string_view line, const std::function<std::string()>& where);

// All launches of a file, plain or gzip; "-" is standard input. Empty lines are skipped. `take` gets each with its place in the file.
void read_launches(const std::string& path, const std::function<void(const LaunchRow&, const std::function<std::string()>& where)>& take);

}  // namespace gpucast

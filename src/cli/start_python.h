// Some subcommands are Python: they need its packages.
#pragma once

#include <string>
#include <vector>

namespace gpucast::cli {

// Replaces this process by `python` with gpucast's own `script` (a file in python/api) and `words`. Returns only by an Error: Python is
// not there, or cannot be started. The script finds this command in GPUCAST_BIN.
[[noreturn]] void start_python(const std::string& python, const std::string& script, const std::vector<std::string>& words);

}  // namespace gpucast::cli

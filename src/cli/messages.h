// What subcommands say, and how.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "gpucast/error.h"
#include "src/run/supervisor.h"

namespace gpucast::cli {

// To standard error, which may be a closed pipe by now: that must not keep us from cleaning up.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

// Standard output is a terminal, and NO_COLOR is not set.
bool colour_wanted();

// " (exit code 3)", " (signal 9, Killed)", or "".
std::string how_it_ended(const Supervised& run);

// Why nothing was captured, where the command never got as far as having PyTorch in a Python of ours. `subcommand`: of gpucast.
std::optional<Error> explain_no_torch(const Supervised& run, const char* subcommand);

}  // namespace gpucast::cli

// Messages to people, on standard error. Results go to standard output.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <utility>

namespace gpucast {

// Standard error may already be a closed pipe. This must not stop our cleaning up.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

}  // namespace gpucast

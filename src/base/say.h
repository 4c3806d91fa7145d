// What people are told, on standard error; results go to standard output.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <utility>

namespace gpucast {

// Standard error may be a closed pipe by now: that must not keep us from cleaning up.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

}  // namespace gpucast

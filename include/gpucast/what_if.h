// The change of `gpucast run --what-if NAME` to a script's training, and its effect.
#pragma once

#include <string>

namespace gpucast {

inline constexpr const char* kMaxLength = "max-length";  // part of a name: "max-length:512"

struct WhatIf {
  std::string name;    // "bf16", "checkpoint:Block"
  std::string did;     // what it changed, or why it changed nothing
  bool acted = false;  // whether it changed something
};

}  // namespace gpucast

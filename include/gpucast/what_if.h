// What `gpucast run --what-if NAME` changed in how a script trains, and how far it got.
#pragma once

#include <string>

namespace gpucast {

inline constexpr const char* kMaxLength = "max-length";  // of a name: "max-length:512"

struct WhatIf {
  std::string name;    // "bf16", "checkpoint:Block"
  std::string did;     // in words: what it changed, or why nothing
  bool acted = false;  // it changed something
};

}  // namespace gpucast

// The what-ifs of `gpucast run`. python/gpucast/what_if.py applies all of them except the command's batch option.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpucast {

struct WhatIfKind {
  const char* name;
  const char* argument;  // "": it has none; "MODULE": written NAME:MODULE; "N": a whole number above 0
  const char* what;      // a short description
};
const std::vector<WhatIfKind>& what_if_kinds();

inline constexpr const char* kHalfBatch = "half-batch";

// Throws Error with a "did you mean" for an unknown name.
void check_what_if(const std::string& name);

// The command with the number of its batch option halved. Unset: it has no such option above 1. Known names are batch, batch_size, bs, b,
// train_batch_size and per_device_train_batch_size, with one dash or two, with '-' instead of '_'; "--batch 64" and "--batch=64".
struct HalvedCommand {
  std::vector<std::string> command;
  std::string did;  // "--batch 64 became 32"
};
std::optional<HalvedCommand> halve_batch(const std::vector<std::string>& command);

}  // namespace gpucast

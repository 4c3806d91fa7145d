// The what-ifs that `gpucast run` knows. python/gpucast/what_if.py does them, all but the batch option of a command.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpucast {

struct WhatIfKind {
  const char* name;
  const char* argument;  // "" for none; "MODULE": written NAME:MODULE; "N": a whole number above 0
  const char* what;      // a few words
};
const std::vector<WhatIfKind>& what_if_kinds();

inline constexpr const char* kHalfBatch = "half-batch";

// Throws Error for one that nobody knows, with a "did you mean".
void check_what_if(const std::string& name);

// The command with the number of its batch option halved; unset: it has none above 1. Known, with one dash or two, and with '-' for '_':
// batch, batch_size, bs, b, train_batch_size, per_device_train_batch_size; "--batch 64" and "--batch=64".
struct HalvedCommand {
  std::vector<std::string> command;
  std::string did;  // "--batch 64 became 32"
};
std::optional<HalvedCommand> halve_batch(const std::vector<std::string>& command);

}  // namespace gpucast

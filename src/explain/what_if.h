// The what-ifs of `gpucast run`. python/gpucast/what_if.py applies all of them except the command's batch option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/what_if.h"

namespace gpucast {

struct WhatIfKind {
  const char* name;
  const char* argument;  // "": it has none; "MODULE": written NAME:MODULE; "N": a whole number above 0; "K": one above 1; "[K]": the same,
                         // or none; "KERNEL"
  const char* what;      // a short description
  bool changes_mathematics = false;
};
const std::vector<WhatIfKind>& what_if_kinds();

// "bf16", "micro-batch:K", "fsdp[:K]".
std::string with_argument(const WhatIfKind& kind);

inline constexpr const char* kHalfBatch = "half-batch";
inline constexpr const char* kMicroBatch = "micro-batch";  // part of a name: "micro-batch:4"

inline constexpr const char* kCompile = "compile";
inline constexpr const char* kFsdp = "fsdp";  // or part of a name: "fsdp:4"

// "micro-batch" of "micro-batch:4", and "4"; the argument may be "".
std::string what_if_kind(const std::string& name);
std::string what_if_argument(const std::string& name);

// Whether training with it computes something else: another batch, other numbers, another optimizer.
bool changes_mathematics(const std::string& name);

// Throws Error with a "did you mean" for an unknown name.
void check_what_if(const std::string& name);

// The command with the number of its batch option divided. Unset: it has no such option, or none of `parts` or more (`exactly`: none that
// `parts` divides). Known names are batch, batch_size, bs, b, train_batch_size and per_device_train_batch_size, with one dash or two, with
// '-' instead of '_'; "--batch 64" and "--batch=64".
struct DividedCommand {
  std::vector<std::string> command;
  std::string did;  // "--batch 64 became 32"
};
std::optional<DividedCommand> divide_batch(const std::vector<std::string>& command, int64_t parts, bool exactly);

// The command that a run with these what-ifs starts, and what they did to it. One that acted is done; the capture layer does the others,
// and the other half of one that has a `did`. Throws Error as check_what_if does.
struct ChangedCommand {
  std::vector<std::string> command;
  std::vector<WhatIf> what_ifs;
};
ChangedCommand change_command(const std::vector<std::string>& command, const std::vector<std::string>& what_ifs);

}  // namespace gpucast

// The only error type. The core throws it, and main catches it once and prints it. Nothing else prints or exits.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace gpucast {

// What happened, where (file, byte offset, event), and what to do about it. `where` and `hint` may be empty.
struct Error : std::runtime_error {
  explicit Error(const std::string& what_happened, std::string where_it_happened = "", std::string what_to_do = "")
      : std::runtime_error(what_happened), where(std::move(where_it_happened)), hint(std::move(what_to_do)) {}
  std::string where;
  std::string hint;
};

// Exit codes (docs/reference/command-line.md).
enum ExitCode : int {
  kExitYes = 0,     // the answer is yes: it fits, or tight with a warning
  kExitNo = 1,      // the answer is no: it does not fit
  kExitFailed = 2,  // the tool or its input failed
  kExitInterrupted = 130,
};

}  // namespace gpucast

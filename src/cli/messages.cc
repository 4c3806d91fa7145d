#include "src/cli/messages.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "src/base/json.h"

namespace gpucast::cli {

bool colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

std::string how_it_ended(const Supervised& run) {
  if (!run.exit_code) return "";
  if (*run.exit_code > 128) return fmt::format(" (signal {}, {})", *run.exit_code - 128, strsignal(*run.exit_code - 128));
  return fmt::format(" (exit code {})", *run.exit_code);
}

std::optional<Error> explain_no_torch(const Supervised& run, const char* subcommand) {
  const Json error = Json::parse(run.error_json);
  const bool failed = run.exit_code.value_or(0) != 0;
  const std::string above = "what it printed is above";
  if (error.value("code", "") == "torch_missing" && run.torch_json.empty()) {
    const std::string python = error.value("python", "");
    return Error(error.value("message", "") + how_it_ended(run), python,
                 fmt::format("activate the environment that holds PyTorch, or: {} -m pip install torch", python));
  }
  if (!run.any_python) {
    const std::string hint = "Python must not be started with -I, -E or -S (they ignore PYTHONPATH), in a container, or on another machine";
    if (failed)
      return Error(fmt::format("the command failed{}, and gpucast saw no Python in it", how_it_ended(run)), "", above + ". " + hint);
    return Error("the command ended, and gpucast saw no Python in it", "", hint);
  }
  if (run.torch_json.empty()) {
    if (failed) return Error(fmt::format("the command failed{} before it imported PyTorch", how_it_ended(run)), "", above);
    return Error("the command ended without importing PyTorch", "",
                 fmt::format("name the command that trains: gpucast {} -- python train.py", subcommand));
  }
  return std::nullopt;
}

}  // namespace gpucast::cli

#include "src/run/failures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "src/base/json.h"
#include "src/base/say.h"
#include "src/run/supervise.h"

namespace gpucast::run {
namespace {

// A process reported why nothing can be captured in it.
Error explain_error(const Json& error) {
  const std::string code = error.value("code", ""), message = error.value("message", ""), python = error.value("python", "");
  const std::string version = error.value("torch", "");
  const std::string release = version.substr(0, version.find('+'));
  if (code == "cpu_only_torch" || code == "rocm_torch") {
    return Error(
        message + ": it has no CUDA code to run on a virtual GPU", python,
        fmt::format(
            "install the CUDA build, e.g. in a new environment: pip install torch=={} (no GPU or driver is needed); or predict from "
            "a profile on the CPU: gpucast profile -- python train.py",
            release));
  }
  if (code == "unknown_cuda") return Error(message, python, "install a PyTorch built for CUDA 12 or 13 in a new environment");
  if (code == "cuda_not_used") {
    return Error(message, "",
                 "make the script train on the GPU (torch.cuda.is_available() is true here), e.g. with its --device cuda option");
  }
  if (code == "cannot_arm") {
    return Error(message, python,
                 "use PyTorch's own caching allocator: no backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF, no "
                 "PYTORCH_NO_CUDA_MEMORY_CACHING, no pluggable allocator");
  }
  return Error(message, python, error.value("to_do", ""));
}

// The word for a command with an exit code that is not 0.
std::string how_it_failed(const Supervised& run) { return run.exit_code.value_or(0) > 128 ? "killed" : "script_failed"; }

}  // namespace

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

RunError explain_nothing(const Supervised& run, double timeout_s, int64_t gpus) {
  const Json error = Json::parse(run.error_json);
  const bool failed = run.exit_code.value_or(0) != 0;
  const std::string code = failed ? how_it_failed(run) : "nothing_captured";
  if (!run.processes.empty()) {
    return {how_it_failed(run),
            Error(fmt::format("the script died{} before its capture was written", how_it_ended(run)), "", "what it printed last is above")};
  }
  if (run.end == Supervised::End::timed_out) {
    return {"timeout",
            Error(fmt::format("nothing was allocated on the GPU within {} s", timeout_s), "", "give it more time: --timeout SECONDS")};
  }
  if (error.is_object() && error.value("code", "") != "torch_missing") return {error.value("code", ""), explain_error(error)};
  if (const auto no_torch = explain_no_torch(run, "run")) return {error.is_object() ? error.value("code", "") : code, *no_torch};
  if (failed)
    return {code,
            Error(fmt::format("the command failed{} before it allocated anything on the GPU", how_it_ended(run)), "",
                  gpus > 1 ? "what it printed is above" : "what it printed is above; a script that wants several GPUs needs --gpus N")};
  if (run.any_idle)
    return {code, Error("the command asked about the GPU and allocated nothing on it", "",
                        "name the command that trains: gpucast run -- python train.py")};
  return {code, Error("the command imported PyTorch and never used CUDA", "",
                      "make the script train on the GPU (torch.cuda.is_available() is true here), e.g. with its --device cuda option")};
}

bool ran_out_of_memory(const CapturedProcess& process) {
  return process.reason == "exception" && (process.exception_type.find("OutOfMemoryError") != std::string::npos ||
                                           process.exception.find("out of memory") != std::string::npos);
}

std::optional<RunError> explain_captured(const CapturedProcess& process, const Supervised& command, double timeout_s, int64_t steps) {
  if (process.reason == "exception") {
    return RunError(ran_out_of_memory(process) ? "out_of_memory" : "script_raised",
                    Error(fmt::format("the script raised {}: {}", process.exception_type, process.exception)));
  }
  if (process.reason == "timeout") {
    return RunError("timeout", Error(fmt::format("the script had taken {}{} optimizer steps after {} s", process.optimizer_steps,
                                                 steps > 0 ? fmt::format(" of {}", steps) : "", timeout_s),
                                     "", "give it more time: --timeout SECONDS"));
  }
  if (process.reason != "script_end" || command.exit_code.value_or(0) == 0) return std::nullopt;
  return RunError(how_it_failed(command), Error(fmt::format("the script failed{}", how_it_ended(command))));
}

namespace {

// Python has printed it in full. Cut at a blank: a cut address leads nowhere.
std::string shortened(const std::string& message) {
  constexpr size_t kMost = 200;
  if (message.size() <= kMost) return message;
  const size_t blank = message.rfind(' ', kMost);
  return message.substr(0, blank == std::string::npos ? kMost : blank) + " ...";
}

}  // namespace

bool say_if_failed(const CapturedProcess& process, const Supervised& command) {
  if (process.reason == "exception") {
    say("gpucast: the script raised {}: {}\n", process.exception_type, shortened(process.exception));
    if (process.exception.find("invalid device ordinal") != std::string::npos)
      say("  to do: say how many GPUs the machine has, e.g. --gpus 8\n");
    return true;
  }
  if (process.reason != "script_end" || (process.exit_code == 0 && command.exit_code.value_or(0) == 0)) return false;
  say("gpucast: the script failed{}\n", process.exit_code == 0 ? how_it_ended(command) : fmt::format(" (exit code {})", process.exit_code));
  return true;
}

bool is_lost_rank(const CapturedProcess& process, const std::vector<CapturedProcess>& captured) {
  const bool other_rank = std::none_of(captured.begin(), captured.end(), [&](const auto& other) { return other.rank == process.rank; });
  return process.died && (process.stepped || other_rank);
}

std::vector<FailedRank> failed_ranks(const Supervised& command, const std::vector<CapturedProcess>& captured, pid_t pid) {
  std::vector<FailedRank> failed;
  for (const CapturedProcess& process : command.processes) {
    if (process.pid == pid) continue;
    if (process.reason == "exception") {
      failed.push_back({process.rank, fmt::format("raised {}: {}", process.exception_type, process.exception)});
    } else if (process.exit_code != 0) {
      failed.push_back({process.rank, fmt::format("failed (exit code {})", process.exit_code)});
    } else if (is_lost_rank(process, captured)) {
      failed.push_back({process.rank, "died before its capture was written"});
    }
  }
  return failed;
}

}  // namespace gpucast::run

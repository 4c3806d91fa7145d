// Starts a command under the capture layer, watches the session folder, and ends all that the command started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpucast::run {

// One captured process, from its files in the session folder.
struct CapturedProcess {
  pid_t pid = 0;
  int64_t rank = 0;
  std::vector<int64_t> devices{0};  // the devices that it used, each with its own capture
  int64_t device = 0;               // the one of `devices` that this entry describes
  bool done = false;                // its capture is complete
  bool stepped = false;             // it has taken an optimizer step
  bool died = false;                // it ended before its capture was complete
  std::string reason;               // steps, script_end, exception, timeout, failed
  std::string exception_type;       // "" when none
  std::string exception;
  int exit_code = 0;  // as the process reported it
  int64_t optimizer_steps = 0;
};

// How the command went. `error_json`: the first PID.error of a process that could not be captured.
struct Supervised {
  // again: a process noticed that a second run must follow values on the card (python/gpucast/values.py).
  enum class End { captured, exited, gave_up, timed_out, interrupted, again };
  End end = End::exited;
  std::optional<int> exit_code;            // of the captured script; when nothing was captured, of the command; 128 + signal
  std::vector<CapturedProcess> processes;  // armed ones, by rank
  std::string error_json;
  bool any_python = false;  // a Python with our hooks ran
  std::string torch_json;   // the PyTorch that a Python imported
  bool any_idle = false;    // a Python queried the GPU but allocated nothing
};

// A process that the fork server forked. It waits at a pipe for its environment and then runs the command. It is used instead of a process
// that we start.
struct Adopted {
  pid_t pid = 0;
  int pipe = -1;
};

// Runs the command until every captured process is done, nothing can be captured, or `timeout_s` (0: none) is over; then
// ends every process it started. The command's standard output goes to our standard error. Blocks signals for good.
Supervised supervise(const std::string& program_path, const std::vector<std::string>& command, const std::vector<std::string>& environment,
                     const std::string& session_folder, double timeout_s, const std::optional<Adopted>& adopted = std::nullopt);

}  // namespace gpucast::run

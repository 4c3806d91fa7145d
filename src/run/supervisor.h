// Starts a command under the capture layer, watches the session folder, and ends all that the command started.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gpucast::cli {

// Where bin/../lib/gpucast is (of a wheel: libexec/gpucast), from the executable's own path. Throws Error when it is incomplete.
std::string library_folder();

// A private folder in the system's temporary folder (mode 0700). Removes what a folder holds and the folder.
std::string make_session_folder();
void remove_folder(const std::string& folder);

// A session folder that is removed on every way out.
struct SessionFolder {
  SessionFolder() : path(make_session_folder()) {}
  ~SessionFolder() { remove_folder(path); }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  std::string path;
};

// A process of its own that outlives this one, should this one be killed (kill -9): then it kills what was started under `session_folder`
// and removes that folder and `file`. To be made while there is one thread, and before anything is started.
class CleanUpWhenKilled {
 public:
  CleanUpWhenKilled(const std::string& session_folder, const std::string& file);
  ~CleanUpWhenKilled();
  CleanUpWhenKilled(const CleanUpWhenKilled&) = delete;
  CleanUpWhenKilled& operator=(const CleanUpWhenKilled&) = delete;

 private:
  int pipe_ = -1;  // closed by our end, whatever it is
};

// The path that `program` stands for, as a shell would find it. Throws Error with a "did you mean".
std::string find_program(const std::string& program);

// The environment of the command: `base` (none: ours) with the capture layer put in front of PYTHONPATH, and the session named.
std::vector<std::string> session_environment(const std::string& library_folder, const std::string& session_folder,
                                             const std::optional<std::vector<std::string>>& base = std::nullopt);
std::vector<std::string> own_environment();  // "NAME=value"

// While one lives, writing to a closed pipe (`gpucast run ... | head`) is an error and not the end: what we made can still be removed.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
};

// What one captured process left in the session folder.
struct CapturedProcess {
  pid_t pid = 0;
  int64_t rank = 0;
  std::vector<int64_t> devices{0};  // that it used, each with a capture of its own
  int64_t device = 0;               // the one of them that this is about
  bool done = false;                // its capture is complete
  bool stepped = false;             // it has taken an optimizer step
  bool died = false;                // it is not done, and was gone before the end
  std::string reason;               // steps, script_end, exception, timeout, failed
  std::string exception_type;       // "" when none
  std::string exception;
  int exit_code = 0;  // as far as it knew
  int64_t optimizer_steps = 0;
};

// How the command went. `error_json`: the first PID.error of a process that could not be captured.
struct Supervised {
  // again: a process found that the run must follow values on the card (python/gpucast/values.py).
  enum class End { captured, exited, gave_up, timed_out, interrupted, again };
  End end = End::exited;
  std::optional<int> exit_code;            // of the captured script or, when nothing was captured, of the command; 128 + signal
  std::vector<CapturedProcess> processes;  // armed ones, by rank
  std::string error_json;
  bool any_python = false;  // a Python with our hooks ran
  std::string torch_json;   // a Python imported PyTorch: which
  bool any_idle = false;    // a Python asked about the GPU and allocated nothing
};

// A child of ours that waits at a pipe for its environment, to run the command with it: the fork server made it. In the place of a
// process that we start.
struct Adopted {
  pid_t pid = 0;
  int pipe = -1;
};

// Every living process below this one, nearest first. We are the subreaper, so what a dead parent left behind is below us too.
std::vector<pid_t> descendants();
// The same without the processes `others` and what is below them.
std::vector<pid_t> descendants_but(const std::set<pid_t>& others);

// Runs the command until every captured process is done, nothing can be captured, or `timeout_s` (0: none) is over; then
// ends every process it started. The command's standard output goes to our standard error. Blocks signals for good.
Supervised supervise(const std::string& program_path, const std::vector<std::string>& command, const std::vector<std::string>& environment,
                     const std::string& session_folder, double timeout_s, const std::optional<Adopted>& adopted = std::nullopt);

}  // namespace gpucast::cli

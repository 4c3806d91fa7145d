// The files of a run: what the session is told, and one capture file out of what captured processes left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/failed_rank.h"
#include "gpucast/gpu.h"
#include "gpucast/trace.h"
#include "gpucast/what_if.h"
#include "src/run/supervisor.h"

namespace gpucast::cli {

// In the place of a number of steps: python/gpucast/steps.py has the same.
inline constexpr int64_t kStepsUntilEnd = 0, kStepsAuto = -1;
inline constexpr const char* kUntilEnd = "until-end";
// Of "3", "auto", "until-end". Throws Error.
int64_t parse_steps(const std::string& text);

struct RunSettings {
  std::string mode = "run";  // "doctor": nothing is captured or ended; "clock": nothing is captured, the card has a clock
  Gpu gpu;
  bool gpu_chosen = false;
  bool enforce_capacity = false;
  std::string cudnn = "off";       // auto, ask, off, or the path of one to ask
  std::string values = "auto";     // whether values on the card are followed: auto (in a second run, where the first needs it), on, off
  std::string assume = "typical";  // none, typical, most: of conditions on values that are not known, how many hold
  int64_t world_size = 0;          // of a job of which only `ranks` run; 0: all do
  std::vector<int64_t> ranks;
  int64_t steps = 3;                 // or kStepsUntilEnd, kStepsAuto
  int64_t gpus = 1;                  // how many of them the machine has
  double timeout_s = 0;              // 0: none
  bool measure_loader = false;       // when the capture is complete
  std::vector<std::string> command;  // what is started
  std::vector<std::string> typed;    // as the user gave it; empty: the same
  double run_s = 0;                  // how long it took, once it has ended
  std::vector<WhatIf> what_if;       // acted: done already, to the command
  int clock = 0;                     // mode "clock": 1 the host waits for the card, 2 its time is set forward
  std::string clock_socket;          // same: who says how long a launch takes
  std::optional<Adopted> adopted;    // runs the command; none: it is started
};

// session.json and profile.base, before the command starts.
void write_session(const std::string& session_folder, const std::string& library_folder, const RunSettings& settings);

struct SessionResult {
  Supervised command;
  std::vector<CapturedProcess> captured;  // those that left a whole capture, by rank; one for each device
};
// Runs settings.command, whose program is at `program_path`, in a session of its own. Unset: it was interrupted, which is said.
std::optional<SessionResult> run_session(const SessionFolder& session, const std::string& program_path, const std::string& library_folder,
                                         const RunSettings& settings);

// A rank that died without a capture. (Others that died so are helpers of the job.)
bool is_lost_rank(const CapturedProcess& process, const std::vector<CapturedProcess>& captured);
// The ranks that raised or were lost, but for the process `pid`, whose report says so itself.
std::vector<FailedRank> failed_ranks(const Supervised& command, const std::vector<CapturedProcess>& captured, pid_t pid);

// A process that was killed leaves what it took from the card: makes a history of that. False when it took nothing.
bool write_partial_history(const std::string& session_folder, const CapturedProcess& process, const std::string& how);

// The script raised, or ended by itself with an exit code that is not 0. Says so.
bool say_if_failed(const CapturedProcess& process, const Supervised& command);

// Where a capture goes: a new file in the folder of `path`, made before the long work so that a folder that cannot be written is
// known at once, and moved to its place when whole. An empty `path`: the system's temporary folder.
class CaptureFile {
 public:
  // Throws Error: `path` exists (without `force`), is no file, or cannot be written. `example`: a name that would do.
  CaptureFile(const std::string& path, bool force, const char* example = "train.gpucast");
  ~CaptureFile();  // removes it unless kept
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  const std::string& path() const { return current_; }
  // Gzip of header, process, history, command's end, virtual GPU, eof.
  void assemble(const std::string& session_folder, const CapturedProcess& process, const RunSettings& settings, const CommandEnd& end);
  // Moves it to the path it was opened for (none: where it is) and keeps it. Returns the path.
  std::string keep();

 private:
  std::string wanted_, current_;
  bool force_ = false;
  bool kept_ = false;
};

// "train.gpucast", 1 -> "train.rank1.gpucast".
std::string rank_path(const std::string& path, int64_t rank);
// The same for each captured process and device, all different: "train.rank1.device3.gpucast" is a process's second device.
std::vector<std::string> capture_paths(const std::string& path, const std::vector<CapturedProcess>& captured);

}  // namespace gpucast::cli

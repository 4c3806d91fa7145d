// One session: from its settings to the files that captured processes write into its folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/what_if.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"
#include "src/schedule/step_constants.h"

namespace gpucast::run {

// Special values of RunSettings::steps. python/gpucast/steps.py has the same.
inline constexpr int64_t kStepsUntilEnd = 0, kStepsAuto = -1;
inline constexpr const char* kUntilEnd = "until-end";
// The number of steps for "3", "auto" or "until-end". Throws Error.
int64_t parse_steps(const std::string& text);

struct RunSettings {
  std::string mode = "run";  // "doctor": nothing is captured or ended; "clock": nothing is captured, the card has a clock
  Gpu gpu;
  bool gpu_chosen = false;
  bool enforce_capacity = false;
  std::string cudnn = "off";       // auto, ask, off, or the path of a cuDNN
  std::string values = "auto";     // whether values on the card are followed: auto (in a second run if the first needs it), on, off
  std::string assume = "typical";  // none, typical, most: how many conditions on unknown values hold; "skew:1.5": expert loads
  int64_t world_size = 0;          // of a job that runs only the ranks in `ranks`; 0: all run
  std::vector<int64_t> ranks;
  int64_t steps = 3;                      // or kStepsUntilEnd, kStepsAuto
  bool may_go_on = false;                 // `steps` is not the user's: a few more show whether memory grows
  int64_t gpus = 1;                       // number of cards in the virtual machine
  double timeout_s = 0;                   // 0: none
  bool measure_loader = false;            // measure it once the capture is complete
  bool measure_host = false;              // let a few more steps run unobserved
  bool leaves_no_files = false;           // the files that the script makes go with the session
  std::vector<std::string> command;       // what is started
  std::vector<std::string> typed;         // as the user typed it; empty: same as `command`
  double run_s = 0;                       // duration of the run, once it has ended
  std::vector<WhatIf> what_if;            // acted: already applied to the command
  int clock = 0;                          // mode "clock": 1 the host waits for the card, 2 the host's clocks are advanced
  std::string clock_socket;               // mode "clock": the socket that answers how long a launch takes
  double clock_event_ns = 0;              // mode "clock": CardRates::event_ns
  StepConstants clock_host;               // mode "clock": of the host of a card
  bool whole_run = false;                 // mode "clock": the process writes the record that gpucast/whole_run.h reads
  int64_t run_epochs = 0, run_steps = 0;  // the user's numbers for it; 0: the script's own
  bool run_by_hand = false;               // a backward pass ends a step: the script has no optimizer
  std::optional<Adopted> adopted;         // the process that runs the command; unset: gpucast starts one
};

// Writes session.json and profile.base, before the command starts.
void write_session(const std::string& session_folder, const std::string& library_folder, const RunSettings& settings);

struct SessionResult {
  Supervised command;
  std::vector<CapturedProcess> captured;  // the processes with a complete capture, by rank; one entry for each device
};
// Runs settings.command in a new session. `program_path`: its program's path. Unset: interrupted, and a message was printed.
std::optional<SessionResult> run_session(const SessionFolder& session, const std::string& program_path, const std::string& library_folder,
                                         const RunSettings& settings);

}  // namespace gpucast::run

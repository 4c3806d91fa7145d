// One session from its settings to what captured processes left in its folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/what_if.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"

namespace gpucast::run {

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

}  // namespace gpucast::run

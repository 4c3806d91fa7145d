#include "src/run/run_session.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "gpucast/error.h"
#include "gpucast/ledger.h"
#include "src/base/json.h"
#include "src/base/say.h"
#include "src/run/made_files.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

constexpr int kSessionSchemaVersion = 1;  // of session.json

// The properties that the virtual card reports. Versions that depend on the PyTorch are missing; the capture layer adds them.
std::string base_profile(const RunSettings& settings) {
  const Gpu& gpu = settings.gpu;
  const uint64_t capacity = usable_capacity_bytes(gpu, 0);
  std::string text;
  const auto line = [&text](const char* key, const auto& value) { text += fmt::format("{} = {}\n", key, value); };
  line("name", gpu.name);
  line("compute_major", gpu.compute_major);
  line("compute_minor", gpu.compute_minor);
  line("multiprocessors", gpu.multiprocessors);
  line("total_memory_bytes", gpu.total_memory_bytes);
  line("context_bytes", gpu.total_memory_bytes - std::min(capacity, gpu.total_memory_bytes));
  line("capacity_bytes", capacity);
  line("enforce_capacity", settings.enforce_capacity ? 1 : 0);
  line("devices", settings.gpus);
  line("l2_bytes", gpu.l2_bytes);
  line("memory_bus_width_bits", gpu.memory_bus_width_bits);
  line("memory_clock_khz", gpu.memory_clock_khz);
  line("clock_khz", gpu.clock_khz);
  line("shared_memory_per_block_bytes", gpu.shared_memory_per_block_bytes);
  line("shared_memory_per_block_optin_bytes", gpu.shared_memory_per_block_optin_bytes);
  line("shared_memory_per_multiprocessor_bytes", gpu.shared_memory_per_multiprocessor_bytes);
  line("registers_per_multiprocessor", gpu.registers_per_multiprocessor);
  line("max_threads_per_multiprocessor", gpu.max_threads_per_multiprocessor);
  line("max_blocks_per_multiprocessor", gpu.max_blocks_per_multiprocessor);
  if (settings.clock != 0) {
    line("clock", settings.clock);
    line("clock_socket", settings.clock_socket);
    line("clock_call_ns", std::llround(settings.clock_host.call_ns));
    line("clock_latency_ns", std::llround(settings.clock_host.latency_ns));
    line("clock_event_ns", std::llround(settings.clock_event_ns));
    line("clock_yardstick_ns", std::llround(settings.clock_host.yardstick_ns));
  }
  return text;
}

void empty_folder(const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) fs::remove_all(entry.path(), error);
}

}  // namespace

int64_t parse_steps(const std::string& text) {
  if (text == kUntilEnd) return kStepsUntilEnd;
  if (text == "auto") return kStepsAuto;
  int64_t steps = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, steps);
  if (problem != std::errc() || stop != end || steps <= 0)
    throw Error(fmt::format("--steps: '{}' is not a number above 0", text), "", "--steps 3, --steps auto, or --until-end");
  return steps;
}

void write_session(const std::string& session_folder, const std::string& library_folder, const RunSettings& settings) {
  Json session;
  session["schema_version"] = kSessionSchemaVersion;
  session["mode"] = settings.mode;
  session["warp"] = settings.clock == 2;
  session["steps"] = settings.steps;
  session["may_go_on"] = settings.may_go_on;
  const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  session["deadline_unix_s"] = settings.timeout_s > 0 ? now_s + settings.timeout_s : 0.0;
  session["cudnn"] = settings.cudnn;
  session["values"] = settings.values;
  session["assume"] = settings.assume;
  session["measure_loader"] = settings.measure_loader;
  session["measure_host"] = settings.measure_host;
  session["leaves_no_files"] = settings.leaves_no_files;
  session["world_size"] = settings.world_size;
  session["ranks"] = settings.ranks;
  session["library_dir"] = library_folder;
  session["supervisor_pid"] = getpid();
  if (settings.whole_run)
    session["whole_run"] = {{"epochs", settings.run_epochs}, {"steps", settings.run_steps}, {"by_hand", settings.run_by_hand}};
  session["what_if"] = Json::array();
  for (const WhatIf& what_if : settings.what_if) {
    if (what_if.acted) continue;
    session["what_if"].push_back(what_if.name);
    if (!what_if.did.empty()) session["divided_batch"] = what_if.did;
  }
  for (const int major : {12, 13}) session["capacity_bytes"][std::to_string(major)] = usable_capacity_bytes(settings.gpu, major);
  write_session_file(session_folder + "/session.json", session.dump() + "\n");
  write_session_file(session_folder + "/profile.base", base_profile(settings));
}

std::optional<SessionResult> run_session(const SessionFolder& session, const std::string& program_path, const std::string& library_folder,
                                         const RunSettings& settings) {
  SessionResult result;
  const auto attempt = [&](const RunSettings& now) {
    write_session(session.path, library_folder, now);
    result.command =
        supervise(program_path, now.command, session_environment(library_folder, session.path), session.path, now.timeout_s, now.adopted);
  };
  attempt(settings);
  if (result.command.end == Supervised::End::again) {
    say("gpucast: what the script does depends on values on the card: started again, following them\n");
    undo_made_files(session.path);
    empty_folder(session.path);
    RunSettings following = settings;
    following.values = "on";
    following.adopted.reset();
    attempt(following);
  }
  if (result.command.end == Supervised::End::interrupted) {
    say("gpucast: interrupted; everything the command started was ended, nothing was kept\n");
    return std::nullopt;
  }
  for (const auto& process : result.command.processes) {
    if (!process.done || process.reason == "failed") continue;
    for (const int64_t device : process.devices) {
      result.captured.push_back(process);
      result.captured.back().device = device;
    }
  }
  return result;
}

}  // namespace gpucast::run

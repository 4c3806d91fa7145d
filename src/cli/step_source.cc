#include "src/cli/step_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "gpucast/error.h"
#include "src/base/comma_words.h"
#include "src/base/read_file.h"
#include "src/base/say.h"
#include "src/base/user_folder.h"
#include "src/run/child_process.h"
#include "src/run/program_path.h"
#include "src/run/session_folder.h"

namespace gpucast::cli {
namespace {

// The file that `calibrate` writes. "": there is none.
std::string users_constants() {
  const std::string folder = user_folder("XDG_CONFIG_HOME", ".config");
  if (folder.empty()) return "";
  const std::string path = folder + "/gpucast/constants.json";
  return access(path.c_str(), R_OK) == 0 ? path : "";
}

// A capture is recognized by its file name, or because it is not a program.
bool is_capture_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode) && (path.ends_with(".gpucast") || access(path.c_str(), X_OK) != 0);
}

// The captures that `gpucast run -o FILE` wrote with FILE: FILE.rank1.gpucast, ...
std::vector<std::string> with_other_ranks(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string begin = file.stem().string() + ".rank";
  std::vector<std::string> out = {path};
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(file.has_parent_path() ? file.parent_path() : ".", unreadable)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(".gpucast")) out.push_back(entry.path().string());
  }
  std::sort(out.begin() + 1, out.end());
  return out;
}

// Runs the command and keeps its capture at `path`. Returns the run's exit code. Without a capture, throws Error or returns
// kExitInterrupted.
int capture(const StepSource& source, const std::string& gpu, const std::string& path) {
  run::Program program;
  program.words = {"gpucast", "run", "--gpu", gpu, "--steps", std::to_string(source.steps), "--format", "json", "--temporary", "-o", path};
  if (source.leaves_no_files) program.words.emplace_back("--leave-no-files");
  if (source.measure_loader) program.words.emplace_back("--measure-loader");
  if (source.gpus_of_node > 0) program.words.insert(program.words.end(), {"--gpus", std::to_string(source.gpus_of_node)});
  if (source.world_size > 0) program.words.insert(program.words.end(), {"--world-size", std::to_string(source.world_size)});
  if (!source.ranks.empty()) program.words.insert(program.words.end(), {"--ranks", source.ranks});
  program.words.emplace_back("--");
  program.words.insert(program.words.end(), source.what.begin(), source.what.end());
  program.environment = run::own_environment();
  if (!source.graph.empty()) program.environment.push_back("GPUCAST_GRAPH=" + source.graph);
  program.folder = ".";
  program.input = STDIN_FILENO;
  program.errors = STDERR_FILENO;
  const int exit_code = run::run_self(program);
  if (exit_code != kExitInterrupted && access(path.c_str(), R_OK) != 0)
    throw Error("the command could not be run on the virtual GPU", "",
                "the lines above say why; `gpucast run -- COMMAND` alone gives more");
  return exit_code;
}

}  // namespace

void declare_step_source(Arguments& arguments, StepSource* source) {
  arguments.option("FILE|COMMAND", &source->what, "a capture, or a command to capture, after --");
  arguments.option("--gpu", &source->gpus, "cards, with commas between them, or all; without it the capture's");
  arguments.option("--steps", &source->steps, "of a command: how many steps to run").positive().shows_default();
}

std::vector<Gpu> cards_of(const std::string& names) {
  if (names == "all") return gpu_table();
  std::vector<Gpu> out;
  for (const std::string& name : comma_words(names)) {
    const Gpu& gpu = find_gpu(name);
    if (std::none_of(out.begin(), out.end(), [&](const Gpu& other) { return other.id == gpu.id; })) out.push_back(gpu);
  }
  return out;
}

const Gpu& one_card(const std::string& gpus, const char* one) {
  if (gpus == "all" || gpus.find(',') != std::string::npos) throw Error(one, "--gpu " + gpus, "name one of them");
  return find_gpu(gpus.empty() ? kDefaultGpu : gpus);
}

std::string read_constants(std::string path) {
  if (path.empty()) {
    path = users_constants();
    if (path.empty()) return "";
    say("gpucast: with your constants of {}\n", path);
  }
  std::string text = read_file(path);
  if (text.empty())
    throw Error("the constants file is empty or cannot be read", path, "docs/reference/time-constants.md says what stands in it");
  return text;
}

bool names_captures(const StepSource& source) {
  return is_capture_file(source.what.front()) && (source.what.size() == 1 || source.what[1].ends_with(".gpucast"));
}

std::optional<StepOnCards> observe_step(const StepSource& source) {
  StepOnCards out;
  const bool is_capture = names_captures(source);
  if (is_capture && (source.gpus_of_node > 0 || source.world_size > 0 || !source.ranks.empty()))
    throw Error("--gpus, --world-size and --ranks say how a command runs, and this is a file", source.what.front(),
                "give the command after --, or leave these options out");
  if (!source.gpus.empty()) out.gpus = cards_of(source.gpus);
  std::optional<run::SessionFolder> temporary;
  std::string path = source.what.front();
  if (is_capture && !source.graph.empty())
    throw Error("a capture does not hold the graph of the model's forward, which DNN-occu needs", path,
                "give the command: gpucast occupancy --method dnn-occu -- COMMAND");
  if (!is_capture) {
    std::error_code unreadable;
    if (source.what.size() == 1 && std::filesystem::is_directory(path, unreadable))
      throw Error("this is a folder, no capture", path, "name a capture, or a command after --");
    if (path.ends_with(".gpucast")) throw Error("there is no such file", path, "`gpucast run -o FILE -- COMMAND` writes one");
    const char* programs = std::getenv("PATH");
    if (source.what.size() == 1 && !run::resolve_program(path, programs != nullptr ? programs : "", "."))
      throw Error("there is no such file, and no such command", path,
                  "name a capture (`gpucast run -o FILE -- COMMAND` writes one), or a command after --");
    if (out.gpus.empty()) out.gpus = {find_gpu(kDefaultGpu)};
    temporary.emplace();
    path = temporary->path + "/step.gpucast";
    if (capture(source, out.gpus.front().id, path) == kExitInterrupted) return std::nullopt;
  }
  std::vector<std::string> paths = is_capture ? source.what : std::vector{path};
  if (paths.size() > 1 && !source.all_ranks) throw Error("one capture at a time", paths[1], "ask again for each");
  if (paths.size() == 1 && source.all_ranks) paths = with_other_ranks(path);
  for (const std::string& file : paths) {
    Trace trace = read_trace(file);
    if (!is_capture) trace.path = "";  // the path of a temporary file must not appear in reports
    if (out.gpus.empty()) out.gpus = {find_gpu(trace.header.gpu.id.empty() ? kDefaultGpu : trace.header.gpu.id)};
    out.others.push_back(follow(std::move(trace)));
  }
  std::ranges::stable_sort(out.others, {}, [](const auto& facts) { return facts->trace.process.rank; });
  out.facts = out.others.front();
  out.others.erase(out.others.begin());
  return out;
}

}  // namespace gpucast::cli

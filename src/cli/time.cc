// `gpucast time`: how long a step takes on a card; or operations, of a list.

#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/step_time.h"
#include "src/base/read_file.h"
#include "src/cli/child_process.h"
#include "src/cli/messages.h"
#include "src/cli/subcommand.h"
#include "src/cli/supervisor.h"
#include "src/time/duration.h"
#include "src/time/operations_file.h"

namespace gpucast::cli {
namespace {

struct Options {
  std::vector<std::string> what;  // a capture file, or a command
  std::string gpus, constants, operations, known, format = "text";
  double cpu_speed = 1;
  int64_t steps = 3;
};

// Where `calibrate` leaves them. "": there is none.
std::string users_constants() {
  const char* folder = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  std::string path;
  if (folder != nullptr && *folder == '/') {
    path = folder;
  } else if (home != nullptr && *home == '/') {
    path = std::string(home) + "/.config";
  } else {
    return "";
  }
  path += "/gpucast/constants.json";
  return access(path.c_str(), R_OK) == 0 ? path : "";
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

void print_operations(const std::string& path, const CardRates& card) {
  fmt::memory_buffer out;
  const auto flush = [&out] {
    std::fwrite(out.data(), 1, out.size(), stdout);
    out.clear();
  };
  read_operations(path, [&](const Operation& operation) {
    const Duration duration = operation_duration(operation, card);
    fmt::format_to(std::back_inserter(out),
                   "{{\"expected_ns\":{:.1f},\"low_ns\":{:.1f},\"high_ns\":{:.1f},\"bound\":\"{}\",\"ideal_ns\":{:.1f}}}\n",
                   duration.expected_ns, duration.low_ns, duration.high_ns, bound_name(duration.bound), duration.ideal_ns);
    if (out.size() > (1U << 16)) flush();
  });
  flush();
}

// "a100-80,h200": each once, in this order. "all": every card of the table.
std::vector<Gpu> cards_of(const std::string& names) {
  if (names == "all") return gpu_table();
  std::vector<Gpu> out;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const Gpu& gpu = find_gpu(names.substr(begin, end - begin));
    if (std::none_of(out.begin(), out.end(), [&](const Gpu& other) { return other.id == gpu.id; })) out.push_back(gpu);
    begin = end + 1;
  }
  return out;
}

// "rtx3090=412ms", also in s and us.
void read_known(const std::string& text, StepTimeOptions* options) {
  const size_t equals = text.find('=');
  const char* number = equals == std::string::npos ? "" : text.c_str() + equals + 1;
  char* unit = nullptr;
  const double value = std::strtod(number, &unit);
  const std::string_view named(unit);
  const double scale = named == "s" ? 1e9 : named == "ms" ? 1e6 : named == "us" ? 1e3 : 0;
  if (unit == number || !std::isfinite(value) || value <= 0 || scale == 0)
    throw Error("--known is a card and the time of a step on it", text, "such as --known rtx3090=412ms");
  options->known_gpu = find_gpu(text.substr(0, equals)).id;
  options->known_step_ns = value * scale;
}

// A capture has its own ending, or is nothing that can be run.
bool is_capture_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode) && (path.ends_with(".gpucast") || access(path.c_str(), X_OK) != 0);
}

// Runs the command as `gpucast run` does, and keeps the capture at `path`. Its report of memory is not shown: whatever its verdict, a step
// that was observed can be timed. Returns its exit code; where there is no capture, throws Error or returns kExitInterrupted.
int capture(const Options& options, const std::string& gpu, const std::string& path) {
  Program program;
  program.words = {"gpucast", "run", "--gpu", gpu, "--steps", std::to_string(options.steps), "--format", "json", "-o", path, "--"};
  program.words.insert(program.words.end(), options.what.begin(), options.what.end());
  program.environment = own_environment();
  program.folder = ".";
  program.input = STDIN_FILENO;
  program.errors = STDERR_FILENO;
  const int exit_code = run_self(program);
  if (exit_code != kExitInterrupted && access(path.c_str(), R_OK) != 0)
    throw Error("the command could not be run on the virtual GPU", "",
                "the lines above say why; `gpucast run -- COMMAND` alone gives more");
  return exit_code;
}

int report(const Options& options) {
  StepTimeOptions wanted;
  wanted.constants_json = read_constants(options.constants);
  wanted.cpu_speed = options.cpu_speed;
  if (!options.known.empty()) read_known(options.known, &wanted);
  const bool is_capture = options.what.size() == 1 && is_capture_file(options.what.front());
  if (!options.gpus.empty()) wanted.gpus = cards_of(options.gpus);
  std::optional<SessionFolder> temporary;
  std::string path = options.what.front();
  if (!is_capture) {
    if (options.what.size() == 1 && options.what.front().ends_with(".gpucast"))
      throw Error("there is no such file", path, "`gpucast run -o FILE -- COMMAND` writes one");
    if (wanted.gpus.empty()) wanted.gpus = {find_gpu(kDefaultGpu)};
    temporary.emplace();
    path = temporary->path + "/step.gpucast";
    if (capture(options, wanted.gpus.front().id, path) == kExitInterrupted) return kExitInterrupted;
  }
  const Trace trace = read_trace(path);
  if (wanted.gpus.empty()) wanted.gpus = {find_gpu(trace.header.gpu.id.empty() ? kDefaultGpu : trace.header.gpu.id)};
  const StepTimes times = step_times(trace, wanted);
  const std::string text = options.format == "json" ? step_times_json(times) : step_times_text(times, colour_wanted());
  std::fputs(text.c_str(), stdout);
  return kExitYes;
}

}  // namespace

void declare_time(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.option("FILE|COMMAND", &options->what, "a capture, or a command to capture, after --");
  arguments.option("--gpu", &options->gpus, "cards, with commas between them, or all; without it the capture's");
  arguments.option("--known", &options->known, "a measured step on some card, such as rtx3090=412ms: other cards follow by ratio");
  arguments.option("--cpu-speed", &options->cpu_speed, "how much faster the training machine's host is than this one")
      .positive()
      .shows_default();
  arguments.option("--constants", &options->constants, "a file of constants, over the built-in ones");
  arguments.option("--steps", &options->steps, "of a command: how many steps to run").positive().shows_default();
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.option("--operations", &options->operations,
                   "in the place of a step: a file of operations, one JSON object a line; - is standard input");
  arguments.action([options] {
    if (!options->operations.empty()) {
      const Gpu& card = find_gpu(options->gpus.empty() ? kDefaultGpu : options->gpus);  // one: a line has one answer
      print_operations(options->operations, card_rates(card, read_constants(options->constants)));
      return static_cast<int>(kExitYes);
    }
    if (options->what.empty())
      throw Error("nothing was named", "", "gpucast time FILE, gpucast time -- COMMAND, or gpucast time --operations FILE");
    return report(*options);
  });
}

}  // namespace gpucast::cli

// `gpucast run`: a command on the virtual GPU, from its start to the report.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/base/json.h"
#include "src/cli/messages.h"
#include "src/cli/report_capture.h"
#include "src/cli/run_capture.h"
#include "src/cli/subcommand.h"
#include "src/cli/supervisor.h"
#include "src/explain/what_if.h"

namespace gpucast::cli {
namespace {

struct Options {
  std::string gpu, output, format = "text";
  int64_t steps = 3;
  double timeout_s = 0;
  bool force = false, enforce_capacity = false;
  std::vector<std::string> command, what_ifs;
};

// A process said itself why nothing can be captured in it.
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
  return Error(message, python, "");
}

// Nothing was captured: say why, as exactly as the session tells.
Error explain_nothing(const Supervised& run, const Options& options) {
  const Json error = Json::parse(run.error_json);
  const bool failed = run.exit_code.value_or(0) != 0;
  if (!run.processes.empty()) {
    return Error(fmt::format("the script died{} before its capture was written", how_it_ended(run)), "", "what it printed last is above");
  }
  if (run.end == Supervised::End::timed_out) {
    return Error(fmt::format("nothing was allocated on the GPU within {} s", options.timeout_s), "",
                 "give it more time: --timeout SECONDS");
  }
  if (error.is_object() && error.value("code", "") != "torch_missing") return explain_error(error);
  if (const auto no_torch = explain_no_torch(run, "run")) return *no_torch;
  if (failed)
    return Error(fmt::format("the command failed{} before it allocated anything on the GPU", how_it_ended(run)), "",
                 "what it printed is above");
  if (run.any_idle)
    return Error("the command asked about the GPU and allocated nothing on it", "",
                 "name the command that trains: gpucast run -- python train.py");
  return Error("the command imported PyTorch and never used CUDA", "",
               "make the script train on the GPU (torch.cuda.is_available() is true here), e.g. with its --device cuda option");
}

bool ran_out_of_memory(const CapturedProcess& process) {
  return process.reason == "exception" && (process.exception_type.find("OutOfMemoryError") != std::string::npos ||
                                           process.exception.find("out of memory") != std::string::npos);
}

// A what-if that is known to change the command changes it here; the others are the capture layer's.
void apply_what_ifs(const Options& options, RunSettings* settings) {
  for (const std::string& name : options.what_ifs) {
    check_what_if(name);
    WhatIf what_if{name, "", false};
    const auto halved = name == kHalfBatch ? halve_batch(settings->command) : std::nullopt;
    if (halved) {
      what_if.did = halved->did;
      what_if.acted = true;
      settings->typed = options.command;
      settings->command = halved->command;
    }
    settings->what_if.push_back(std::move(what_if));
  }
}

int run(const Options& options) {
  RunSettings settings;
  settings.gpu_chosen = !options.gpu.empty();
  settings.gpu = find_gpu(settings.gpu_chosen ? options.gpu : kDefaultGpu);
  settings.steps = options.steps;
  settings.timeout_s = options.timeout_s;
  settings.enforce_capacity = options.enforce_capacity;
  settings.command = options.command;
  apply_what_ifs(options, &settings);
  const std::string program = find_program(options.command.front());
  const std::string libraries = library_folder();
  const NoSigpipe no_sigpipe;
  auto output = std::make_unique<CaptureFile>(options.output, options.force);

  std::vector<std::string> files;
  int worst = kExitYes;
  bool failed = false, kept = !options.output.empty();
  {
    const SessionFolder session;
    const auto start = std::chrono::steady_clock::now();
    const auto result = run_session(session, program, libraries, settings);
    settings.run_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!result) return kExitInterrupted;
    const std::vector<CapturedProcess>& captured = result->captured;
    if (captured.empty()) throw explain_nothing(result->command, options);

    for (const auto& process : captured) {
      if (!say_if_failed(process, result->command)) continue;
      kept = true;
      if (settings.enforce_capacity && ran_out_of_memory(process)) {
        worst = std::max<int>(worst, kExitNo);
      } else {
        failed = true;
      }
    }
    for (size_t i = 0; i < captured.size(); ++i) {
      // Rank 0 has the name that was asked for. Without a name, the other ranks' captures are of no use.
      if (i > 0 && options.output.empty()) break;
      if (i > 0) output = std::make_unique<CaptureFile>(rank_path(options.output, static_cast<int64_t>(i)), options.force);
      output->assemble(session.path, captured[i], settings, result->command.exit_code.value_or(0));
      files.push_back(kept ? output->keep() : output->path());
    }
    if (captured.size() > 1) {
      say("gpucast: {} processes were captured; the report is of the first (rank {})\n", captured.size(), captured[0].rank);
    }
  }
  for (const auto& file : files) {
    if (failed) {
      say("gpucast: the capture up to there is in {}\n", file);
    } else if (kept) {
      say("gpucast: the capture is in {}\n", file);
    }
  }
  int answer = kExitYes;
  bool reader_gone = false;
  try {
    answer = report_trace(read_trace(files.front()), std::nullopt, options.format == "json" ? Format::json : Format::text, kept);
    reader_gone = std::fflush(stdout) != 0 && errno == EPIPE;
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::broken_pipe) throw;
    reader_gone = true;
  }
  if (reader_gone) {  // `| head`: end as other commands do, now that nothing of ours is left
    output.reset();
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  return failed ? kExitFailed : std::max(worst, answer);
}

}  // namespace

void declare_run(Arguments& arguments) {
  static Options options;
  arguments.option("--gpu", &options.gpu,
                   "the card, as `gpucast gpus` names it (default: an A100-80, and the report lists the cards that would do)");
  arguments.option("--steps", &options.steps, "end after this many optimizer steps").positive().shows_default();
  arguments.option("-o,--output", &options.output, "keep the capture in this file");
  arguments.flag("--force", &options.force, "overwrite the output file");
  arguments.option("--timeout", &options.timeout_s, "end after this many seconds").positive();
  arguments.flag("--enforce-capacity", &options.enforce_capacity, "make allocations fail where the card is full");
  std::vector<std::string> what_ifs;
  for (const WhatIfKind& kind : what_if_kinds()) {
    what_ifs.push_back(fmt::format("{}{}{} ({})", kind.name, *kind.argument == '\0' ? "" : ":", kind.argument, kind.what));
  }
  arguments
      .option("--what-if", &options.what_ifs,
              fmt::format("run it with one change, the script as it is; may be given again: {}", fmt::join(what_ifs, "; ")))
      .one_each_time();
  arguments.option("--format", &options.format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.command(&options.command);
  arguments.action([] { return run(options); });
}

}  // namespace gpucast::cli

// `gpucast run`: runs a command on the virtual GPU and prints the report.

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/predict.h"
#include "gpucast/ranks.h"
#include "gpucast/report.h"
#include "src/base/json.h"
#include "src/base/links.h"
#include "src/base/say.h"
#include "src/base/seconds_since.h"
#include "src/cli/report_capture.h"
#include "src/cli/step_source.h"
#include "src/cli/subcommand.h"
#include "src/explain/what_if.h"
#include "src/run/capture_file.h"
#include "src/run/clean_up_when_killed.h"
#include "src/run/clock_run.h"
#include "src/run/failures.h"
#include "src/run/own_ranks.h"
#include "src/run/processes.h"
#include "src/run/program_path.h"
#include "src/run/run_session.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"

namespace gpucast::cli {
namespace {

constexpr const char* kFirstRank = "0";

struct RunCommand {
  std::string gpu, output, format = "text", cudnn = "auto", values = "auto", assume = "typical";
  std::string ranks = kFirstRank;
  std::string steps = "3";
  bool steps_given = false;  // else a few more where memory grows
  int64_t steps_total = 0;
  bool until_end = false;
  int64_t max_length = 0, gpus = 1, world_size = 0;
  double timeout_s = 0, confidence = kDefaultConfidence;
  bool force = false, enforce_capacity = false, measure_loader = false;
  bool real_time = false, warp = false;
  std::vector<std::string> command, what_ifs;
  // Options for `gpucast batch` and `gpucast time`, not for users.
  bool measure_host = false;    // of a job
  bool leave_no_files = false;  // undo what the script writes
  bool as_job = false;          // always print one JSON object on standard output: job_result()
  bool temporary = false;       // the caller removes the capture after the run, so messages do not name it
  std::string adopt;            // "PROCESS,PIPE": a process of the fork server runs the command
};

// The result of a batch's job.
struct JobResult {
  std::string report;  // JSON; "": none
  std::optional<run::RunError> error;
  int64_t printed_bytes = -1;  // size of standard error, a file, when the script had ended; -1: it did not run
};

// The first killed process that had allocated memory on the card, as if it had been captured.
std::vector<run::CapturedProcess> partial_captures_of_killed(const run::SessionResult& result, const std::string& session_folder) {
  const int code = result.command.exit_code.value_or(0);
  const std::string how = code > 128 ? fmt::format("killed by signal {} ({})", code - 128, strsignal(code - 128)) : "gone before its end";
  for (const run::CapturedProcess& process : result.command.processes) {
    if (process.died && run::write_partial_history(session_folder, process, how)) return {process};
  }
  return {};
}

// Applies what-ifs that change the command. The capture layer applies the others.
void apply_what_ifs(const RunCommand& options, run::RunSettings* settings) {
  std::vector<std::string> names = options.what_ifs;
  if (options.max_length > 0) names.push_back(fmt::format("{}:{}", kMaxLength, options.max_length));
  ChangedCommand changed = change_command(settings->command, names);
  if (changed.command != settings->command) settings->typed = options.command;
  settings->command = std::move(changed.command);
  settings->what_if = std::move(changed.what_ifs);
}

// For some ranks of a larger job: starts the command once for each rank, with the variables that torchrun sets. The other ranks are
// simulated.
void choose_ranks(const RunCommand& options, run::RunSettings* settings) {
  settings->world_size = options.world_size;
  settings->ranks = run::parse_ranks("--ranks", options.ranks, options.world_size);
  const int64_t of_node = std::min<int64_t>(options.world_size, options.gpus > 1 ? options.gpus : kUsualNodeCards);
  settings->gpus = of_node;
  settings->typed = options.command;
  const std::string script = fmt::format(
      "export WORLD_SIZE={0} LOCAL_WORLD_SIZE={1} GPUCAST_RANKS_HERE={2} MASTER_ADDR=127.0.0.1 MASTER_PORT=29500\n"
      "started= failed=0\n"
      "for rank in {3}; do\n"
      "  RANK=$rank LOCAL_RANK=$((rank % {1})) GROUP_RANK=$((rank / {1})) \"$@\" & started=\"$started $!\"\n"
      "done\n"
      "for process in $started; do wait $process || failed=$?; done\n"
      "exit $failed\n",
      options.world_size, of_node, fmt::join(settings->ranks, ","), fmt::join(settings->ranks, " "));
  std::vector<std::string> command = {"sh", "-c", script, "sh"};
  command.insert(command.end(), settings->command.begin(), settings->command.end());
  settings->command = std::move(command);
}

// "auto", "ask", "off", or the absolute path of a file or folder.
std::string cudnn_to_ask(const std::string& word) {
  if (word == "auto" || word == "ask" || word == "off") return word;
  std::error_code error;
  const auto path = std::filesystem::absolute(word, error);
  if (error || !std::filesystem::exists(path, error))
    throw Error(fmt::format("--cudnn: there is no '{}'", word), "",
                "say auto, ask or off, or name the folder that pip installed cuDNN in (or its libcudnn.so.9)");
  return path.string();
}

run::Adopted parse_adopted(const std::string& text) {
  run::Adopted adopted;
  if (std::sscanf(text.c_str(), "%d,%d", &adopted.pid, &adopted.pipe) != 2) throw Error("--adopt is for gpucast batch only");
  return adopted;
}

int64_t size_of_standard_error() {
  struct stat status {};
  return fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

// The prediction of the rank and device that decides the verdict, with the figures of all.
Prediction predict_job(const std::vector<std::string>& files, bool kept, const RunCommand& options) {
  std::vector<Prediction> predictions;
  predictions.reserve(files.size());
  for (const std::string& file : files) predictions.push_back(predict(read_trace(file), std::nullopt, options.confidence));
  for (Prediction& prediction : predictions) prediction.steps_total = options.steps_total;
  if (predictions.size() == 1) return predictions.front();
  Ranks ranks = compare_ranks(predictions);
  for (size_t i = 0; kept && i < files.size(); ++i) ranks.lines[i].capture_path = files[i];
  Prediction judged = predictions[ranks.judged];
  judged.ranks = std::move(ranks);
  return judged;
}

int run_on_clock(const RunCommand& options, const run::RunSettings& settings) {
  if (options.real_time && options.warp) throw Error("--real-time and --warp are two ways of the same", "", "choose one of them");
  if (!options.output.empty() || options.world_size > 0 || !options.what_ifs.empty() || options.as_job || options.format != "text")
    throw Error("a run with a clock makes no report and no capture", "",
                "leave -o, --world-size, --what-if and --format out; run without --real-time and --warp for these");
  return run::run_with_clock(settings, options.warp, read_constants("")).exit_code;
}

run::RunSettings settings_of(const RunCommand& options) {
  run::RunSettings settings;
  if (!options.adopt.empty()) settings.adopted = parse_adopted(options.adopt);
  settings.gpu_chosen = !options.gpu.empty();
  settings.gpu = find_gpu(settings.gpu_chosen ? options.gpu : kDefaultGpu);
  settings.gpus = options.gpus;
  settings.steps = run::parse_steps(options.until_end ? run::kUntilEnd : options.steps);
  settings.may_go_on = !options.until_end && !options.steps_given;
  settings.timeout_s = options.timeout_s;
  settings.enforce_capacity = options.enforce_capacity;
  settings.cudnn = cudnn_to_ask(options.cudnn);
  settings.values = options.values;
  settings.assume = options.assume;
  settings.measure_loader = options.measure_loader;
  settings.leaves_no_files = options.leave_no_files;
  // A kept capture and `gpucast time -- COMMAND` are for step times. A batch makes many runs, mostly for memory: its jobs ask.
  settings.measure_host = !options.output.empty() && (!options.as_job || options.measure_host);
  settings.command = options.command;
  apply_what_ifs(options, &settings);
  return settings;
}

// The captures of a run and how it went.
struct Captures {
  std::vector<std::unique_ptr<run::CaptureFile>> outputs;  // a file that is not kept is removed with its entry
  std::vector<std::string> files;
  int worst = kExitYes;  // kExitNo: ran out of memory under --enforce-capacity
  bool failed = false;   // the job, or a part of it, failed
  bool kept = false;     // the files stay after the run
};

// Prints and notes how the captured processes ended, and which ranks were lost.
void note_failures(const RunCommand& options, const run::RunSettings& settings, const run::SessionResult& result,
                   const std::vector<run::CapturedProcess>& captured, Captures* out, JobResult* job) {
  for (const auto& process : captured) {
    if (!job->error) job->error = run::explain_captured(process, result.command, options.timeout_s, settings.steps);
    if (!run::say_if_failed(process, result.command)) continue;
    out->kept = out->kept || !options.as_job;  // a batch would leave many files
    if (settings.enforce_capacity && run::ran_out_of_memory(process)) {
      out->worst = std::max<int>(out->worst, kExitNo);
    } else {
      out->failed = true;
    }
  }
  for (const auto& process : result.command.processes) {
    if (!run::is_lost_rank(process, captured)) continue;
    const std::string what = fmt::format("rank {} died before its capture was written", process.rank);
    say("gpucast: {}\n", what);
    if (!job->error) job->error = run::RunError("killed", Error(what));
    out->failed = true;
  }
}

// Runs the command and writes its captures. False: interrupted.
bool run_and_capture(const RunCommand& options, const std::string& program, run::RunSettings settings, Captures* out, JobResult* job) {
  const std::string libraries = run::library_folder();
  out->kept = !options.output.empty();
  out->outputs.push_back(std::make_unique<run::CaptureFile>(options.output, options.force));
  const run::SessionFolder session;
  std::optional<run::CleanUpWhenKilled> clean_up;  // a batch cleans up after its own runs
  if (!options.as_job) clean_up.emplace(session.path, out->outputs.front()->path());
  const auto start = Clock::now();
  const auto result = run::run_session(session, program, libraries, settings);
  settings.run_s = seconds_since(start);
  job->printed_bytes = size_of_standard_error();
  if (!result) return false;
  std::vector<run::CapturedProcess> captured = result->captured;
  if (captured.empty()) {
    const run::RunError why = run::explain_nothing(result->command, options.timeout_s, options.gpus);
    captured = partial_captures_of_killed(*result, session.path);
    if (captured.empty() || options.as_job) throw why;
    say("gpucast: {}; the report is of what the virtual GPU's own log knows\n", why.what());
    out->failed = true;
  }
  note_failures(options, settings, *result, captured, out, job);
  const auto paths = run::capture_paths(options.output, captured);
  for (size_t i = 0; i < captured.size(); ++i) {
    // The first one has the requested name, and was made before the run.
    if (i > 0) out->outputs.push_back(std::make_unique<run::CaptureFile>(options.output.empty() ? "" : paths[i], options.force));
    run::CaptureFile& output = *out->outputs[i];
    output.assemble(session.path, captured[i], settings,
                    {result->command.exit_code.value_or(0), run::failed_ranks(result->command, captured, captured[i].pid)});
    out->files.push_back(out->kept ? output.keep() : output.path());
  }
  return true;
}

// Fills the report of a batch's job. Returns the job's exit code.
int report_to_job(const RunCommand& options, const Captures& captures, JobResult* job) {
  const Prediction prediction = predict_job(captures.files, captures.kept, options);
  job->report = json_report(prediction);
  const bool timed_out = job->error && job->error->code == "timeout";
  const int exit_code = captures.failed || timed_out ? kExitFailed : std::max<int>(captures.worst, exit_code_of(prediction));
  if (exit_code == kExitFailed && !job->error)
    job->error = run::RunError("no_verdict", Error("there is nothing to judge: see the report's warnings"));
  return exit_code;
}

// Prints the report. Returns the exit code.
int report_to_user(const RunCommand& options, Captures* captures) {
  int answer = kExitYes;
  bool reader_gone = false;
  try {
    const Prediction prediction = predict_job(captures->files, captures->kept, options);
    const std::string judged = !captures->kept    ? ""
                               : prediction.ranks ? prediction.ranks->lines[prediction.ranks->judged].capture_path
                                                  : captures->files.front();
    answer = report(prediction, options.format == "json" ? Format::json : Format::text, judged);
    reader_gone = std::fflush(stdout) != 0 && errno == EPIPE;
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::broken_pipe) throw;
    reader_gone = true;
  }
  if (reader_gone) {  // `| head`: all our files are removed, so end by SIGPIPE as other commands do
    captures->outputs.clear();
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  return captures->failed ? kExitFailed : std::max(captures->worst, answer);
}

int run_command(const RunCommand& options, JobResult* job) {
  check_confidence(options.confidence);
  run::RunSettings settings = settings_of(options);
  if (options.real_time || options.warp) return run_on_clock(options, settings);
  std::string program = run::find_program(options.command.front());
  run::check_own_ranks(options.command, options.world_size, options.ranks == kFirstRank ? "" : options.ranks);
  if (options.world_size > 0) {
    choose_ranks(options, &settings);
    program = run::find_program("sh");
  }
  const run::NoSigpipe no_sigpipe;
  Captures captures;
  if (!run_and_capture(options, program, settings, &captures, job)) return kExitInterrupted;
  for (const auto& file : captures.files) {
    if (!captures.kept || options.temporary) continue;
    if (captures.failed) {
      say("gpucast: the capture up to there is in {}\n", file);
    } else {
      say("gpucast: the capture is in {}\n", file);
    }
  }
  return options.as_job ? report_to_job(options, captures, job) : report_to_user(options, &captures);
}

// `run` as one job of a batch. Differs only in its standard output: {"exit_code", "report", "error", "printed_bytes"}.
int run_as_job(const RunCommand& options) {
  JobResult job;
  int exit_code = kExitFailed;
  std::exception_ptr thrown;
  try {
    exit_code = run_command(options, &job);
  } catch (const run::RunError& error) {
    job.error = error;
    thrown = std::current_exception();
  } catch (const Error& error) {
    job.error = run::RunError("failed", error);
    thrown = std::current_exception();
  }
  Json result;
  result["exit_code"] = exit_code;
  result["report"] = Json::parse(job.report);
  result["error"] = nullptr;
  if (job.error) {
    result["error"] = {{"code", job.error->code}, {"message", job.error->what()}, {"where", job.error->where}, {"to_do", job.error->hint}};
  }
  result["printed_bytes"] = job.printed_bytes;
  std::fputs(result.dump().c_str(), stdout);
  std::fflush(stdout);
  if (thrown) std::rethrow_exception(thrown);
  return exit_code;
}

}  // namespace

void declare_run(Arguments& arguments) {
  static RunCommand options;
  arguments.option("--gpu", &options.gpu,
                   "the card, as `gpucast gpus` names it (default: an A100-80, and the report lists the cards that would do)");
  arguments
      .option(
          "--gpus", &options.gpus,
          "how many such cards the machine has; a launcher that starts more ranks than that (torchrun --nproc-per-node) has one for each")
      .positive()
      .shows_default();
  arguments
      .option("--world-size", &options.world_size,
              "run the command as --ranks of a job of this many, with what torchrun would set; the other ranks are simulated as holding "
              "the same")
      .positive();
  arguments.option("--ranks", &options.ranks, "which of them, e.g. 0,8").shows_default();
  const auto steps = arguments.option(
      "--steps", &options.steps,
      "end after this many optimizer steps (default: 3, and more where memory grows, until that is certain); auto: when the peaks "
      "stop growing, including an evaluation that follows soon; until-end: not before the script");
  declare_steps_total(arguments, &options.steps_total);
  arguments.flag("--until-end", &options.until_end, "as --steps until-end");
  arguments.flag("--real-time", &options.real_time,
                 "run the script to its end at the card's predicted speed: it waits for the card, and measures the card's times");
  arguments.flag("--warp", &options.warp, "the same, but advance the script's clocks instead of waiting");
  arguments.option("-o,--output", &options.output, "keep the capture in this file");
  arguments.flag("--force", &options.force, "overwrite the output file");
  arguments.option("--timeout", &options.timeout_s, "end after this many seconds").positive();
  declare_confidence(arguments, &options.confidence);
  arguments.flag("--enforce-capacity", &options.enforce_capacity, "make allocations fail where the card is full");
  arguments
      .option("--cudnn", &options.cudnn,
              "ask the cuDNN in the script's environment for the sizes of its workspaces: auto (if it is there), ask, off; or the path of "
              "another cuDNN")
      .shows_default();
  arguments
      .option("--max-length", &options.max_length,
              "pad every batch of texts to this many tokens: the longest that may come, where the steps that run do not show it")
      .positive();
  arguments
      .option(
          "--values", &options.values,
          "whether values on the card are followed where they come from the host: auto (where the script's course depends on them), on, "
          "off")
      .one_of({"auto", "on", "off"})
      .shows_default();
  arguments
      .option("--assume", &options.assume,
              "what depends on unknown values: how many of many conditions hold (boxes above a threshold): none, typical, most. Tokens are "
              "spread evenly over experts; skew:X: by Zipf's law with exponent X")
      .one_of_or_number({"none", "typical", "most"}, "skew", "X")
      .shows_default();
  arguments.flag(
      "--measure-loader", &options.measure_loader,
      "after the last step, measure how fast the script's DataLoader gives batches, with 0, 1 and 2 workers; about 5 s. `gpucast time` "
      "always does this");
  std::vector<std::string> what_ifs;
  for (const WhatIfKind& kind : what_if_kinds()) {
    what_ifs.push_back(fmt::format("{} ({})", with_argument(kind), kind.what));
  }
  arguments
      .option("--what-if", &options.what_ifs,
              fmt::format("run it with one change, the script as it is; may be given again: {}", fmt::join(what_ifs, "; ")))
      .one_each_time();
  arguments.option("--format", &options.format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.flag("--as-job", &options.as_job, "").group("");
  arguments.flag("--measure-host", &options.measure_host, "").group("");
  arguments.flag("--leave-no-files", &options.leave_no_files, "").group("");
  arguments.option("--adopt", &options.adopt, "").group("");
  arguments.flag("--temporary", &options.temporary, "").group("");
  arguments.command(&options.command);
  arguments.action([steps] {
    options.steps_given = steps.given();
    JobResult unused;
    return options.as_job ? run_as_job(options) : run_command(options, &unused);
  });
}

}  // namespace gpucast::cli

// `gpucast advise`: its options, and the question that a command or a capture makes. src/search/advise.cc finds the answer.

#include "gpucast/advise.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/base/bytes.h"
#include "src/base/comma_words.h"
#include "src/base/say.h"
#include "src/cli/load_trace.h"
#include "src/cli/messages.h"
#include "src/cli/subcommand.h"
#include "src/report/text_writer.h"
#include "src/run/own_ranks.h"
#include "src/search/advise.h"
#include "src/search/patch.h"

namespace gpucast::cli {
namespace {

struct AdviseCommand {
  std::string gpu, allow, cache, steps, ranks, patch, format = "text";
  int64_t runs = 0, gpus = 0, world_size = 0;
  double seconds = 55;
  bool fresh = false;
  std::string file;  // or the first word of the command
  std::vector<std::string> more_words;
};

// A capture names the command, its folder, its allocator settings and its what-ifs.
search::RunSpec spec_of_capture(const std::string& path) {
  const Trace trace = read_trace(path);
  const Header& header = trace.header;
  if (header.command.empty())
    throw Error("this is no capture of a command that could be run again", path,
                "capture the command: gpucast run -o train.gpucast -- python train.py; or name it: gpucast advise -- python train.py");
  search::RunSpec spec;
  spec.command = header.command;
  spec.gpu = header.gpu.id;
  std::error_code error;
  if (!header.folder.empty() && std::filesystem::is_directory(header.folder, error)) spec.folder = header.folder;
  if (!trace.process.alloc_conf.empty()) spec.environment.emplace_back("PYTORCH_CUDA_ALLOC_CONF", trace.process.alloc_conf);
  for (const WhatIf& what_if : header.what_if) spec.what_ifs.push_back(what_if.name);
  return spec;
}

search::AdviseQuestion question_of(const AdviseCommand& options) {
  search::AdviseQuestion question;
  if (options.file.empty())
    throw Error("advise got neither a capture nor a command", "", "write: gpucast advise --gpu rtx3060 -- python train.py");
  // A single word that is a file and cannot be started is a capture.
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(options.file, error) && access(options.file.c_str(), X_OK) != 0;
  if (options.more_words.empty() && is_file) {
    question.as_it_is = spec_of_capture(options.file);
  } else {
    question.as_it_is.command = {options.file};
    question.as_it_is.command.insert(question.as_it_is.command.end(), options.more_words.begin(), options.more_words.end());
  }
  if (!options.gpu.empty()) question.as_it_is.gpu = options.gpu;
  if (question.as_it_is.gpu.empty())
    throw Error("advise needs a card to advise for", "", "name one: --gpu rtx3060 (`gpucast gpus` lists them)");
  question.as_it_is.gpu = find_gpu(question.as_it_is.gpu).id;
  question.as_it_is.steps = options.steps;
  question.as_it_is.gpus = options.gpus;
  question.as_it_is.world_size = options.world_size;
  question.as_it_is.ranks = options.ranks;
  run::check_own_ranks(question.as_it_is.command, options.world_size, options.ranks);
  if (!options.allow.empty()) question.allowed = comma_words(options.allow);
  question.most_runs = options.runs;
  question.most_seconds = options.seconds;
  return question;
}

// One line that is written over and over on a terminal; elsewhere nothing.
void show_progress(const search::AdviseProgress& progress) {
  if (isatty(STDERR_FILENO) != 1) return;
  const std::string best = progress.best == nullptr ? "none fits yet"
                                                    : fmt::format("best so far: {} a step, {}", time_text(progress.best->step_ns),
                                                                  format_bytes(progress.best->device_expected_bytes));
  say("\r\x1b[K{}", cut_end(fmt::format("gpucast: {} runs, {:.0f} s; {}; ran {}", progress.runs, progress.seconds, best,
                                        progress.latest.empty() ? "as it is" : progress.latest),
                            kColumns - 1));
}

int advise_command(const AdviseCommand& options) {
  const search::AdviseQuestion question = question_of(options);
  if (!options.patch.empty()) search::check_patch_path(options.patch);
  search::RunsOptions runs;
  runs.cache_folder = options.cache;
  runs.fresh = options.fresh;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  try {
    Advice advice = search::advise(question, runs, show_progress);
    if (!options.patch.empty()) advice.patches = search::write_patches(advice, options.patch);
    if (terminal) say("\r\x1b[K");
    if (!options.patch.empty() && advice.patches.empty()) say("gpucast: no patch was written: nothing better changes the script\n");
    std::fputs((options.format == "json" ? advice_json(advice) : advice_text(advice, colour_wanted())).c_str(), stdout);
    return advice.best ? kExitYes : kExitNo;
  } catch (const search::Interrupted&) {
    say("{}gpucast: interrupted; started again, it goes on with the runs that are done\n", terminal ? "\r\x1b[K" : "");
    return kExitInterrupted;
  }
}

}  // namespace

void declare_advise(Arguments& arguments) {
  auto options = std::make_shared<AdviseCommand>();
  arguments.option("--gpu", &options->gpu, "the card to fit (default: a capture's own)");
  arguments.option("--gpus", &options->gpus, "how many such cards the machine has, as in `gpucast run`").positive();
  arguments.option("--world-size", &options->world_size, "run the command as --ranks of a job of this many, as in `gpucast run`")
      .positive();
  arguments.option("--ranks", &options->ranks, "which of them, e.g. 0,8 (default: 0)");
  arguments.option(
      "--allow", &options->allow,
      "changes of the mathematics that may be tried, with commas: bf16,bf16-weights,8bit-optimizer,factored-optimizer,half-batch; "
      "and compile, whose runs take minutes");
  arguments.option("--runs", &options->runs, "at most this many runs (default: no limit)").positive();
  arguments.option("--seconds", &options->seconds, "about how long the search may take; 0: until it is done")
      .not_negative()
      .shows_default();
  arguments.option("--steps", &options->steps, "the optimizer steps of each run, as in `gpucast run`");
  arguments.option("--cache", &options->cache, "the folder in which runs are kept (default: the user's cache)");
  arguments.flag("--fresh", &options->fresh, "make every run again, without the cache");
  arguments.option("--write-patch", &options->patch,
                   "write the chosen change of the script as a patch to this file; to a folder, one for each point of the front");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.option("FILE", &options->file, "a capture whose command is run again; or, after --, the command");
  arguments.option("COMMAND", &options->more_words, "the rest of the command");
  arguments.action([options] { return advise_command(*options); });
}

}  // namespace gpucast::cli

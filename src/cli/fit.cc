// gpucast fit -- COMMAND: the largest batch (or other value) that fits each card.

#include "gpucast/fit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/predict.h"
#include "src/base/say.h"
#include "src/cli/messages.h"
#include "src/cli/report_capture.h"
#include "src/cli/step_source.h"
#include "src/cli/subcommand.h"
#include "src/cli/write_output.h"
#include "src/run/capture_file.h"
#include "src/run/program_path.h"
#include "src/run/run_session.h"
#include "src/search/accumulation.h"
#include "src/search/command_option.h"
#include "src/search/fit.h"

namespace gpucast::cli {
namespace {

struct FitCommand {
  std::vector<std::string> command;
  std::string gpus, vary, accumulate, steps, cache, html, format = "text";
  double confidence = kDefaultConfidence, timeout_s = 0;
  bool fresh = false, force = false;
};

void show_progress(const search::Run& run, const search::Vary& vary, bool on_terminal) {
  if (!on_terminal) return;
  std::string what = search::run_line(run.spec);
  const auto value = search::value_of_option(run.spec.command, vary.target);
  if (value && vary.kind == search::VaryKind::option) what = vary.target + " " + *value;
  if (vary.kind == search::VaryKind::loader && !run.spec.what_ifs.empty()) what = run.spec.what_ifs.back();
  say("gpucast: {} on {}: {}\n", what, run.spec.gpu,
      run.cached                            ? "made before"
      : run.end == search::RunEnd::captured ? fmt::format("{:.1f} s", run.seconds)
                                            : "failed: " + (run.problem ? run.problem->message : ""));
}

// Every value of the range; with accumulation only divisors of the global batch.
std::vector<int64_t> candidates(const search::Vary& vary, const std::optional<search::Accumulation>& accumulation) {
  std::vector<int64_t> values;
  for (int64_t value = vary.low; value <= vary.high; value += vary.step) {
    if (!accumulation || accumulation->global_batch % value == 0) values.push_back(value);
  }
  if (values.empty())
    throw Error(fmt::format("no value of {}..{} divides the global batch {}", vary.low, vary.high, accumulation->global_batch),
                "--accumulate", "widen the range, or take another global batch");
  return values;
}

int answer(const FitCommand& options, const Fit& fit, run::CaptureFile* page) {
  if (page != nullptr) write_output(options.html, page, [&](std::ostream& out) { out << fit_html(fit); });
  std::fputs(options.format == "json" ? fit_json(fit).c_str() : fit_text(fit, colour_wanted()).c_str(), stdout);
  const bool all = std::ranges::all_of(fit.answers, [](const FitAnswer& answer) { return answer.largest.has_value(); });
  return all ? kExitYes : kExitNo;
}

// The first setting of `varied` that matters. Without one, why the first does not; if the script fails with each, why with the last, which
// changes the least.
Fit first_that_answers(const std::vector<search::Vary>& varied, const std::optional<search::Accumulation>& accumulation,
                       search::FitQuestion* question, search::Runs* runs) {
  std::optional<Error> problem, failure;
  for (const search::Vary& vary : varied) {
    question->vary = vary;
    question->values = candidates(vary, accumulation);
    if (isatty(STDERR_FILENO) == 1) say("gpucast: looking for the largest {}: {}\n", vary.name, search::target_text(vary));
    try {
      return search::find_fit(*question, runs);
    } catch (const search::ScriptFails& error) {
      failure = error;
    } catch (const Error& error) {
      if (!problem) problem = error;
    }
  }
  throw problem ? *problem : *failure;
}

int find(const FitCommand& options) {
  check_confidence(options.confidence);
  if (!options.steps.empty()) (void)run::parse_steps(options.steps);
  (void)run::find_program(options.command.front());
  search::RunsOptions runs_options;
  runs_options.cache_folder = options.cache;
  runs_options.fresh = options.fresh;
  search::FitQuestion question;
  question.spec.command = options.command;
  question.spec.steps = options.steps;
  question.spec.timeout_s = options.timeout_s;
  question.cards = cards_of(options.gpus);
  question.confidence = options.confidence;
  std::vector<search::Vary> varied;
  if (options.vary.empty()) {
    varied = search::find_batches(options.command, ".");
  } else {
    varied = {search::parse_vary(options.vary, options.command)};
  }
  std::optional<search::Accumulation> accumulation;
  if (!options.accumulate.empty()) accumulation = search::parse_accumulation(options.accumulate, options.command, ".");
  const std::string copies = (options.cache.empty() ? search::default_cache_folder() : options.cache) + "/settings";
  question.with = [&](const search::RunSpec& spec, int64_t value) {
    search::RunSpec out = search::with_value(spec, question.vary, value, copies);
    if (accumulation) out.command = search::with_accumulation(out.command, *accumulation, value);
    return out;
  };
  const bool on_terminal = isatty(STDERR_FILENO) == 1;
  runs_options.on_end = [&](const search::Run& run) { show_progress(run, question.vary, on_terminal); };
  std::optional<run::CaptureFile> page;
  if (!options.html.empty()) page.emplace(options.html, options.force, "fit.html");
  search::Runs runs(std::move(runs_options));
  try {
    return answer(options, first_that_answers(varied, accumulation, &question, &runs), page ? &*page : nullptr);
  } catch (const search::Interrupted&) {
    say("gpucast: interrupted; everything that was started was ended. The same command goes on from here\n");
    return kExitInterrupted;
  }
}

}  // namespace

void declare_fit(Arguments& arguments) {
  auto options = std::make_shared<FitCommand>();
  arguments.option("--gpu", &options->gpus, "cards, with commas between them, or all").required();
  arguments.option("--vary", &options->vary,
                   "what to vary: NAME=OPTION:LOW..HIGH, e.g. batch=--batch-size:1..512 or size=--img-size:224..1024/32; NAME=FILE:KEY for "
                   "a key of a settings file; NAME=loader for the DataLoader's batch_size (default: the batch)");
  arguments.option("--accumulate", &options->accumulate,
                   "keep this global batch by accumulating gradients: N, or N=OPTION where the script's option has an unusual name");
  arguments.option("--steps", &options->steps, "optimizer steps of each run: a number, auto or until-end (default 3)");
  arguments.option("--timeout", &options->timeout_s, "end a run after this many seconds").positive();
  declare_confidence(arguments, &options->confidence);
  arguments.option("--cache", &options->cache, "the folder of runs that were made before (default: ~/.cache/gpucast/runs)");
  arguments.flag("--fresh", &options->fresh, "make all runs again");
  arguments.option("--html", &options->html, "also write a page: memory and speed against the value");
  arguments.flag("--force", &options->force, "overwrite that page");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.command(&options->command);
  arguments.action([options] { return find(*options); });
}

}  // namespace gpucast::cli

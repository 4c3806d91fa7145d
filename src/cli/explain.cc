// gpucast explain FILE: explains the job's memory and what would reduce it. With --rerun the script runs again under each what-if.

#include "gpucast/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/base/say.h"
#include "src/cli/load_trace.h"
#include "src/cli/messages.h"
#include "src/cli/report_capture.h"
#include "src/cli/subcommand.h"
#include "src/explain/explain.h"
#include "src/explain/profile_remedies.h"
#include "src/predict/analysis.h"
#include "src/search/remedies.h"
#include "src/search/runs.h"

namespace gpucast::cli {
namespace {

struct ExplainCommand {
  Input input;
  std::string format = "text";
  bool rerun = false;
  int64_t steps_total = 0;
};

// ---- the subcommand --------------------------------------------------------------------------------------------------------

void show_progress(const search::Run& run) {
  const std::vector<std::string>& what_ifs = run.spec.what_ifs;
  say("gpucast: run {}: {}\n", what_ifs.empty() ? "as it is" : fmt::format("with {}", fmt::join(what_ifs, " and ")),
      run.cached              ? "made before"
      : !run.captures.empty() ? fmt::format("{:.1f} s", run.seconds)
                              : "failed: " + (run.problem ? run.problem->message : ""));
}

void add_what_ifs(const Analysis& analysis, const ExplainCommand& options, Explanation* out) {
  const std::vector<std::string> what_ifs = what_ifs_to_try(analysis);
  if (what_ifs.empty()) return;
  if (options.rerun) {
    search::RunsOptions runs_options;
    if (isatty(STDERR_FILENO) == 1) runs_options.on_end = show_progress;
    search::Runs runs(std::move(runs_options));
    return search::add_remedies(analysis, what_ifs, &runs, out);
  }
  for (const std::string& name : what_ifs) {
    Remedy remedy;
    remedy.by = RemedyBy::rerun;
    remedy.name = name;
    remedy.what = what_if_words(name);
    out->remedies.push_back(std::move(remedy));
  }
  out->reruns_left = static_cast<int64_t>(what_ifs.size()) + 1;
}

int explain_file(const ExplainCommand& options) {
  const Analysis analysis = judge(follow(options.input.load()), options.input.card());
  if (options.rerun && analysis.prediction.source != "vgpu") {
    throw Error("--rerun was given, and this is no capture of a command that could be run again", options.input.path,
                "leave --rerun out, or capture the command: gpucast run -o train.gpucast -- python train.py");
  }
  Explanation explanation = explain(analysis);
  try {
    add_what_ifs(analysis, options, &explanation);
  } catch (const search::Interrupted&) {
    say("gpucast: interrupted; everything that was started was ended. The same command goes on from here\n");
    return kExitInterrupted;
  }
  for (Remedy& remedy : profile_remedies(analysis, options.input.path, options.input.profile))
    explanation.remedies.push_back(std::move(remedy));
  sort_remedies(&explanation.remedies);
  if (options.format == "json") {
    std::fputs(explain_json(explanation).c_str(), stdout);
  } else {
    std::fputs(explain_text(explanation, options.input.path, colour_wanted()).c_str(), stdout);
  }
  Prediction judged = analysis.prediction;
  judged.steps_total = options.steps_total;
  return exit_code_of(judged);
}

}  // namespace

void declare_explain(Arguments& arguments) {
  auto options = std::make_shared<ExplainCommand>();
  declare_input(arguments, &options->input);
  declare_steps_total(arguments, &options->steps_total);
  arguments.flag("--rerun", &options->rerun, "run the captured command again under each what-if that can matter, and say what it saves");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.option("--traced-batch", &options->input.profile.traced_batch_size, "the batch size of a profiler trace, where it does not say")
      .positive();
  arguments.action([options] { return explain_file(*options); });
}

}  // namespace gpucast::cli

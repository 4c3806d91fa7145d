// gpucast explain FILE: explains the job's memory and what would reduce it. With --rerun the script runs again under each what-if.

#include "gpucast/explain.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/base/bytes.h"
#include "src/base/say.h"
#include "src/cli/load_trace.h"
#include "src/cli/messages.h"
#include "src/cli/report_capture.h"
#include "src/cli/subcommand.h"
#include "src/explain/explain.h"
#include "src/explain/profile_remedies.h"
#include "src/predict/analysis.h"
#include "src/run/child_process.h"
#include "src/run/session_folder.h"

extern char** environ;

namespace gpucast::cli {
namespace {

namespace fs = std::filesystem;

struct ExplainCommand {
  Input input;
  std::string format = "text";
  bool rerun = false;
  int64_t steps_total = 0;
};

// ---- running the script again ----------------------------------------------------------------------------------------------

struct Interrupted {};

// Runs the capture's command like `gpucast run`, each time with another change, in the capture's folder and with its allocator settings.
class Reruns {
 public:
  explicit Reruns(const Analysis& recorded) : recorded_(recorded) {
    const std::string& folder = recorded.facts->trace.header.folder;
    std::error_code error;
    if (!folder.empty() && fs::is_directory(folder, error)) folder_ = folder;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      if (!text.starts_with("PYTORCH_ALLOC_CONF=") && !text.starts_with("PYTORCH_CUDA_ALLOC_CONF=")) environment_.emplace_back(text);
    }
    const std::string& conf = recorded.facts->trace.process.alloc_conf;
    if (!conf.empty()) environment_.push_back("PYTORCH_CUDA_ALLOC_CONF=" + conf);
  }

  // Throws Error with the reason when the run gives no capture. Throws Interrupted.
  Analysis run(const std::vector<std::string>& what_ifs) {
    const run::SessionFolder temporary;
    const std::string capture = temporary.path + "/rerun.gpucast", log = temporary.path + "/log";
    const Prediction& p = recorded_.prediction;
    std::vector<std::string> words = {"gpucast", "run", "--gpu", p.gpu_id, "-o", capture, "--format", "json"};
    if (p.steps_rule == "auto") words.insert(words.end(), {"--steps", "auto"});
    if (p.steps_rule == "until-end") words.emplace_back("--until-end");
    if (p.steps_requested > 0) words.insert(words.end(), {"--steps", std::to_string(p.steps_requested)});
    for (const std::string& what_if : what_ifs) words.insert(words.end(), {"--what-if", what_if});
    words.emplace_back("--");
    words.insert(words.end(), p.command.begin(), p.command.end());
    const int exit_code = start_and_wait(words, log);
    if (exit_code == kExitInterrupted) throw Interrupted();
    if (exit_code != kExitYes && exit_code != kExitNo) throw Error(last_words(log));
    return judge(follow(read_trace(capture)), p.gpu_id);
  }

 private:
  int start_and_wait(const std::vector<std::string>& words, const std::string& log) const {
    const run::Fd out(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!out)
      throw Error(fmt::format("cannot write to the temporary folder: {}", std::strerror(errno)), log, "free some space, or set TMPDIR");
    run::Program program;
    program.words = words;
    program.environment = environment_;
    program.folder = folder_.empty() ? "." : folder_;
    program.errors = out.get();
    return run::run_self(program);
  }

  // The error that `gpucast run` reported, or else the last printed line.
  static std::string last_words(const std::string& log) {
    std::ifstream in(log);
    std::string said, last;
    for (std::string line; std::getline(in, line);) {
      if (line.empty()) continue;
      if (said.empty() && line.starts_with("gpucast: ")) said = line.substr(std::strlen("gpucast: "));
      last = line;
    }
    return said.empty() ? last : said;
  }

  const Analysis& recorded_;
  std::string folder_;
  std::vector<std::string> environment_;
};

std::string difference_to_recorded(const Analysis& recorded, const Analysis& now) {
  const Prediction &p = recorded.prediction, &q = now.prediction;
  if (p.peak_allocated.bytes == q.peak_allocated.bytes && p.peak_reserved.bytes == q.peak_reserved.bytes && p.torch == q.torch) return "";
  std::string why;
  if (p.torch != q.torch) why = fmt::format(" with torch {} instead of {}", q.torch, p.torch);
  if (p.enforced_capacity) why += " without the card's limit";
  if (p.gpu_id != p.captured_gpu_id) why += fmt::format(" on {} instead of {}", p.gpu_id, p.captured_gpu_id);
  return fmt::format("Run again as it is{}, the script reserves {} at its peak and allocates {} ({}). What is saved is counted from there.",
                     why, format_bytes(q.peak_reserved.bytes), format_bytes(q.peak_allocated.bytes),
                     q.verdict == Verdict::does_not_fit ? "does not fit" : verdict_name(q.verdict));
}

Remedy not_computed(const std::string& what_if, std::string why) {
  Remedy remedy;
  remedy.by = RemedyBy::rerun;
  remedy.name = what_if;
  remedy.what = what_if_words(what_if);
  remedy.note = std::move(why);
  return remedy;
}

// Runs the unchanged script first: savings are differences from its memory.
void run_again(const Analysis& recorded, const std::vector<std::string>& what_ifs, Explanation* out) {
  Reruns reruns(recorded);
  const bool progress = isatty(STDERR_FILENO) == 1;
  std::vector<std::string> own;
  own.reserve(recorded.prediction.what_if.size());
  for (const WhatIf& what_if : recorded.prediction.what_if) own.push_back(what_if.name);
  std::optional<Analysis> baseline;
  try {
    if (progress) say("gpucast: run 1 of {}: as it is\n", what_ifs.size() + 1);
    baseline = reruns.run(own);
  } catch (const Error& error) {
    out->baseline = fmt::format("The script could not be run again: {}.", error.what());
    for (const std::string& name : what_ifs) out->remedies.push_back(not_computed(name, "the script could not be run again"));
    return;
  }
  out->baseline = difference_to_recorded(recorded, *baseline);
  if (!out->baseline.empty()) {
    // Also replaces the explanation of allocator settings, so that it is about a complete run of the same script as the what-ifs.
    Explanation now = explain(*baseline);
    out->remedies = std::move(now.remedies);
    out->settings_tried = now.settings_tried;
  }
  for (size_t i = 0; i < what_ifs.size(); ++i) {
    const std::string& name = what_ifs[i];
    if (progress) say("gpucast: run {} of {}: {}\n", i + 2, what_ifs.size() + 1, name);
    std::vector<std::string> with = own;
    with.push_back(name);
    try {
      const Analysis changed = reruns.run(with);
      const std::vector<WhatIf>& done = changed.prediction.what_if;
      const auto what_if = std::find_if(done.begin(), done.end(), [&](const WhatIf& other) { return other.name == name; });
      if (what_if == done.end() || !what_if->acted) {
        out->remedies.push_back(not_computed(name, "it changes nothing: " + (what_if == done.end() ? "" : what_if->did)));
        continue;
      }
      out->remedies.push_back(compare_remedy(RemedyBy::rerun, name, baseline->prediction, changed.prediction));
      out->remedies.back().note = what_if->did;
    } catch (const Error& error) {
      out->remedies.push_back(not_computed(name, error.what()));
    }
  }
}

// ---- the subcommand --------------------------------------------------------------------------------------------------------

void add_what_ifs(const Analysis& analysis, const ExplainCommand& options, Explanation* out) {
  const std::vector<std::string> what_ifs = what_ifs_to_try(analysis);
  if (what_ifs.empty()) return;
  if (options.rerun) return run_again(analysis, what_ifs, out);
  for (const std::string& name : what_ifs) out->remedies.push_back(not_computed(name, ""));
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
  } catch (const Interrupted&) {
    say("gpucast: interrupted; everything that was started was ended\n");
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

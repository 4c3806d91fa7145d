// gpucast diff BEFORE AFTER: memory growth by category and by module, with a verdict for CI.

#include "gpucast/diff.h"

#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpucast/error.h"
#include "src/breakdown/fail_above.h"
#include "src/cli/load_trace.h"
#include "src/cli/messages.h"
#include "src/cli/subcommand.h"
#include "src/predict/analysis.h"
#include "src/report/diff_reports.h"

namespace gpucast::cli {
namespace {

struct DiffCommand {
  std::string before, after, by = "module", format = "text", gpu, torch_version;
  std::optional<std::string> fail_above;
  std::optional<int> device;
};

DiffInput load(const std::string& file, const DiffCommand& options) {
  const std::optional<std::string> gpu = options.gpu.empty() ? std::nullopt : std::optional(options.gpu);
  OrchestrateOptions profile;
  profile.torch = options.torch_version;
  const Analysis analysis = judge(follow(load_trace(file, options.device, gpu, profile)), gpu);
  return {file, analysis.prediction, breakdown(analysis)};
}

Grouping grouping(const std::string& name) {
  size_t i = 0;
  while (name != grouping_name(static_cast<Grouping>(i))) ++i;
  return static_cast<Grouping>(i);
}

int diff_files(const DiffCommand& options) {
  check_torch_version(options.torch_version);
  if (options.fail_above) parse_fail_above(*options.fail_above, 0, "--fail-above");  // before the long work
  const DiffInput before = load(options.before, options);
  Diff result = diff(before, load(options.after, options), grouping(options.by));
  if (options.fail_above) {
    result.fail_above = parse_fail_above(*options.fail_above, result.peak_reserved.before_bytes, "--fail-above");
    result.fail_above->exceeded = result.peak_reserved.change_bytes() > result.fail_above->bytes;
  }
  const std::string text = options.format == "json"       ? diff_json(result)
                           : options.format == "markdown" ? diff_markdown(result)
                                                          : diff_text(result, colour_wanted());
  std::fputs(text.c_str(), stdout);
  return result.fail_above && result.fail_above->exceeded ? kExitNo : kExitYes;
}

}  // namespace

void declare_diff(Arguments& arguments) {
  auto options = std::make_shared<DiffCommand>();
  const std::string kinds =
      "a capture (*.gpucast), a memory snapshot of PyTorch (*.pickle), or a PyTorch Profiler trace (*.json, *.json.gz)";
  arguments.option("BEFORE", &options->before, kinds).required();
  arguments.option("AFTER", &options->after, "the same, not necessarily of the same kind").required();
  std::vector<std::string> groupings;
  groupings.reserve(static_cast<size_t>(Grouping::count_));
  for (size_t i = 0; i < static_cast<size_t>(Grouping::count_); ++i) groupings.emplace_back(grouping_name(static_cast<Grouping>(i)));
  arguments.option("--by", &options->by, "module, operator, phase, step or tensor").one_of(groupings).shows_default();
  arguments.option("--fail-above", &options->fail_above,
                   "exit with 1 when peak reserved grows by more: a size (50MiB), or a percentage of before (5%)");
  arguments.option("--gpu", &options->gpu, "the card to count both for (see `gpucast gpus`); without it each capture's own");
  arguments.option("--device", &options->device, "which GPU of snapshots that hold several");
  arguments.option("--torch-version", &options->torch_version,
                   "the PyTorch release that profiler traces are predicted for, where they do not say");
  arguments.option("--format", &options->format, "text, json or markdown").one_of({"text", "json", "markdown"}).shows_default();
  arguments.action([options] { return diff_files(*options); });
}

}  // namespace gpucast::cli

// `gpucast sweep`: starts the Python package's sweep (python/api/gpucast/sweep), for YAML, Parquet, Optuna and Ray are Python's.

#include <fmt/core.h>

#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/cli/start_python.h"
#include "src/cli/subcommand.h"
#include "src/report/html_template.h"

namespace gpucast::cli {
namespace {

struct SweepOptions {
  std::string spec, output, engine = "local", address, captures, python = "python3", format = "text";
  int64_t jobs = 0;
  bool fresh = false, retry_failed = false, dry_run = false, page = false;
};

std::vector<std::string> sweep_words(const SweepOptions& options) {
  std::vector<std::string> words{"--engine=" + options.engine, "--format=" + options.format};
  const auto option = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("{}={}", name, value));
  };
  const auto flag = [&](const char* name, bool given) {
    if (given) words.emplace_back(name);
  };
  option("--output", options.output);
  option("--address", options.address);
  option("--keep-captures", options.captures);
  if (options.jobs > 0) option("--jobs", std::to_string(options.jobs));
  flag("--fresh", options.fresh);
  flag("--retry-failed", options.retry_failed);
  flag("--dry-run", options.dry_run);
  words.emplace_back("--");
  words.push_back(options.spec);
  return words;
}

// Does not return, unless Python cannot be started.
int start_sweep(const SweepOptions& options) {
  if (options.spec.empty()) throw Error("no spec is named", "", "gpucast sweep SPEC.yaml; docs/reference/sweep.md shows one");
  start_python(options.python, "gpucast_sweep.py", sweep_words(options));
}

}  // namespace

void declare_sweep(Arguments& arguments) {
  static SweepOptions options;
  arguments.option("SPEC", &options.spec, "what varies, as YAML, TOML or JSON: docs/reference/sweep.md");
  arguments.option("-o,--output", &options.output,
                   "the folder of the results (default: the spec's name with .sweep); a started sweep goes on");
  arguments.option("--engine", &options.engine, "local: on this machine; ray: on a Ray cluster").one_of({"local", "ray"}).shows_default();
  arguments.option("--address", &options.address, "the Ray cluster (default: RAY_ADDRESS, or the cluster of this machine)");
  arguments.option("--jobs", &options.jobs, "how many runs at a time (default: the number that processors and memory allow)").positive();
  arguments.option("--keep-captures", &options.captures, "keep each capture in this folder");
  arguments.flag("--fresh", &options.fresh, "drop the rows of an earlier sweep in the folder");
  arguments.flag("--retry-failed", &options.retry_failed, "run cases again that failed");
  arguments.flag("--dry-run", &options.dry_run, "show what would run");
  arguments.option("--python", &options.python, "the Python with the packages of gpucast[sweep]; the command has its own").shows_default();
  arguments.option("--format", &options.format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.flag("--page", &options.page, "").group("");
  arguments.action([] {
    if (!options.page) return start_sweep(options);
    fmt::print("{}", cases_template());
    return int{kExitYes};
  });
}

}  // namespace gpucast::cli

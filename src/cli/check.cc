// `gpucast check`: its options, and the files it writes. src/check does the work.

#include "src/check/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <list>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/check/reports.h"
#include "src/cli/messages.h"
#include "src/cli/subcommand.h"
#include "src/cli/write_output.h"
#include "src/run/capture_file.h"
#include "src/search/runs.h"

namespace gpucast::cli {
namespace {

struct CheckCommand {
  std::string config, format = "text", output;
  std::vector<std::string> writes;
  check::CheckOptions options;
  bool force = false;
};

struct ReportFile {
  ReportFile(std::string form, std::string where, bool force)
      : format(std::move(form)), path(std::move(where)), target(path, force, "check.md") {}
  std::string format, path;
  run::CaptureFile target;
};

// Opened before the long work, because they may not be writable.
std::list<ReportFile> report_files(const CheckCommand& command) {
  std::list<ReportFile> out;
  if (!command.output.empty()) out.emplace_back(command.format, command.output, command.force);
  for (const std::string& write : command.writes) {
    const size_t equals = write.find('=');
    const std::string format = write.substr(0, equals);
    const std::vector<std::string>& names = check::report_names();
    if (equals == std::string::npos || equals + 1 == write.size() || std::find(names.begin(), names.end(), format) == names.end())
      throw Error("--write is a form and a file", write,
                  "such as --write markdown=check.md --write sarif=check.sarif --write junit=check.xml");
    out.emplace_back(format, write.substr(equals + 1), command.force);
  }
  return out;
}

int run_check(const CheckCommand& command) {
  const check::Config config = check::read_config(command.config.empty() ? check::find_config(".") : command.config);
  std::list<ReportFile> files = report_files(command);
  check::CheckResult result;
  try {
    result = check::check(config, command.options);
  } catch (const search::Interrupted&) {
    return kExitInterrupted;
  }
  for (ReportFile& file : files)
    write_output(file.path, &file.target, [&](std::ostream& out) { out << check::report_as(file.format, result); });
  if (command.output.empty()) {
    const std::string text =
        command.format == "text" ? check::check_text(result, colour_wanted()) : check::report_as(command.format, result);
    std::fputs(text.c_str(), stdout);
  }
  return result.exit_code();
}

}  // namespace

void declare_check(Arguments& arguments) {
  auto command = std::make_shared<CheckCommand>();
  arguments.option("--config", &command->config, "the jobs and their limits (default: gpucast.toml here or in the nearest folder above)");
  arguments.option("--job", &command->options.only, "only this job; may be repeated").one_each_time();
  arguments.option("--format", &command->format, "text, json, sarif, junit or markdown").one_of(check::report_names()).shows_default();
  arguments.option("-o,--output", &command->output, "write the result to this file instead of standard output");
  arguments.option("--write", &command->writes, "write another form to a file, too: markdown=check.md; may be repeated").one_each_time();
  arguments.flag("--force", &command->force, "overwrite the files of --output and --write");
  arguments.flag("--update-baseline", &command->options.update_baseline,
                 "write the figures of now as the baseline; growth breaks no limit");
  arguments.flag("--fresh", &command->options.fresh, "make each run again, even if an earlier check or search made it");
  arguments.option("--jobs", &command->options.at_a_time, "how many runs at a time (default: the number that processors and memory allow)")
      .positive();
  arguments.action([command] { return run_check(*command); });
}

}  // namespace gpucast::cli

// gpucast export FILE --to FORM -o PATH: writes files for other tools.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "gpucast/breakdown.h"
#include "gpucast/error.h"
#include "gpucast/report.h"
#include "gpucast/trace.h"
#include "src/cli/load_trace.h"
#include "src/cli/subcommand.h"
#include "src/cli/write_output.h"
#include "src/predict/analysis.h"
#include "src/report/html_export.h"
#include "src/report/perfetto_export.h"
#include "src/report/snapshot_export.h"
#include "src/run/capture_file.h"

namespace gpucast::cli {
namespace {

// One line for each export format.
struct Form {
  const char* name;
  const char* help;
  void (*write)(const Analysis&, std::ostream&);
  const char* afterwards;  // a hint on how to open the file
};

void write_csv(const Analysis& analysis, std::ostream& out) { out << breakdown_csv(breakdown(analysis), std::nullopt); }
void write_json(const Analysis& analysis, std::ostream& out) { out << breakdown_json(breakdown(analysis)); }

const Form kForms[] = {
    {"html", "a report for the browser: one file, no network", write_html, "open it in a browser"},
    {"csv", "where the memory goes, by module, operator, phase, step and tensor, for spreadsheets", write_csv,
     "its columns: docs/reference/breakdown.md"},
    {"json", "the same for scripts", write_json, "its fields: docs/reference/breakdown.md"},
    {"perfetto", "memory, steps, phases, modules and blocks over time, for ui.perfetto.dev and chrome://tracing", write_perfetto,
     "open it at https://ui.perfetto.dev or in chrome://tracing"},
    {"snapshot", "a memory snapshot of PyTorch, for memory_viz", write_snapshot,
     "look at it with https://pytorch.org/memory_viz or python -m torch.cuda._memory_viz"},
};

struct ExportCommand {
  Input input;
  std::string to, output;
  bool force = false;
};

int export_file(const ExportCommand& options) {
  // Finds also other names and links. --force does not allow this, because a capture takes long to make again.
  std::error_code none;
  if (std::filesystem::equivalent(options.input.path, options.output, none))
    throw Error("the output is the input itself", options.output, "choose another name: an export does not replace what it is made from");
  run::CaptureFile target(options.output, options.force);  // before the long work, because it may fail
  const Analysis analysis = judge(follow(options.input.load()), options.input.card());
  const auto form = std::find_if(std::begin(kForms), std::end(kForms), [&](const Form& known) { return known.name == options.to; });
  if (form == std::end(kForms)) throw Error("there is no such form", options.to);
  const std::string path = write_output(options.output, &target, [&](std::ostream& out) { form->write(analysis, out); });
  fmt::print(stderr, "gpucast: {} is written; {}\n", path, form->afterwards);
  return kExitYes;
}

}  // namespace

void declare_export(Arguments& arguments) {
  auto options = std::make_shared<ExportCommand>();
  declare_input(arguments, &options->input);
  std::vector<std::string> names, sentences;
  for (const Form& form : kForms) {
    names.emplace_back(form.name);
    sentences.push_back(fmt::format("{}: {}", form.name, form.help));
  }
  arguments.option("--to", &options->to, fmt::format("{}", fmt::join(sentences, "; "))).required().one_of(names);
  arguments.option("-o,--output", &options->output, "the file to write; compressed when its name ends in .gz").required();
  arguments.flag("--force", &options->force, "overwrite the output file");
  arguments.action([options] { return export_file(*options); });
}

}  // namespace gpucast::cli

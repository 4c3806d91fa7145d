// gpucast breakdown FILE: memory by module, operator, phase, step or tensor.

#include "gpucast/breakdown.h"

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/report.h"
#include "src/cli/load_trace.h"
#include "src/cli/messages.h"
#include "src/cli/subcommand.h"
#include "src/predict/analysis.h"

namespace gpucast::cli {
namespace {

// In the order of the enum's values.
template <class Enum>
std::vector<std::string> names_of(const char* (*name)(Enum)) {
  std::vector<std::string> out;
  out.reserve(static_cast<size_t>(Enum::count_));
  for (size_t i = 0; i < static_cast<size_t>(Enum::count_); ++i) out.emplace_back(name(static_cast<Enum>(i)));
  return out;
}

template <class Enum>
Enum value_of(const char* (*name)(Enum), const std::string& wanted) {
  const auto names = names_of(name);
  return static_cast<Enum>(std::find(names.begin(), names.end(), wanted) - names.begin());
}

}  // namespace

void declare_breakdown(Arguments& arguments) {
  struct Options {
    Input input;
    std::string by, at = "peak", format = "text";
    std::optional<int32_t> depth;
    size_t rows = 20;
  };
  auto options = std::make_shared<Options>();
  declare_input(arguments, &options->input);
  arguments
      .option("--by", &options->by,
              "module, operator, phase, step or tensor; without it module, or operator where the file knows no modules")
      .one_of(names_of(grouping_name));
  arguments.option("--at", &options->at, "text: peak, forward_end, end (of the capture), or maximum (of each figure)")
      .one_of(names_of(instant_name))
      .shows_default();
  arguments.option("--depth", &options->depth, "text: how deep into the module tree; without it as deep as fits on a screen")
      .not_negative();
  arguments.option("--rows", &options->rows, "text: the most rows of a list").positive().shows_default();
  arguments.option("--format", &options->format, "text, json or csv").one_of({"text", "json", "csv"}).shows_default();
  arguments.action([options] {
    const Breakdown result = breakdown(judge(follow(options->input.load()), options->input.card()));
    const bool has_modules = result.by(Grouping::module).size() > 1;
    const Grouping by = options->by.empty() ? (has_modules ? Grouping::module : Grouping::op) : value_of(grouping_name, options->by);
    std::string text;
    if (options->format == "json") {
      text = breakdown_json(result);
    } else if (options->format == "csv") {
      text = breakdown_csv(result, by);
    } else {
      text = breakdown_text(result, {colour_wanted(), by, value_of(instant_name, options->at), options->depth, options->rows});
    }
    std::fputs(text.c_str(), stdout);
    return kExitYes;
  });
}

}  // namespace gpucast::cli

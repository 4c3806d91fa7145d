// gpucast breakdown FILE: where the memory goes, by module, operator, phase, step or tensor.

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

template <class Enum>
std::map<std::string, Enum> names_of(const char* (*name)(Enum)) {
  std::map<std::string, Enum> out;
  for (size_t i = 0; i < static_cast<size_t>(Enum::count_); ++i) out[name(static_cast<Enum>(i))] = static_cast<Enum>(i);
  return out;
}

}  // namespace

void declare_breakdown(CLI::App& app, std::function<int()>& action) {
  struct Options {
    Input input;
    std::string by, at = "peak", format = "text";
    std::optional<int32_t> depth;
    size_t rows = 20;
  };
  auto options = std::make_shared<Options>();
  declare_input(app, &options->input);
  app.add_option("--by", options->by,
                 "module, operator, phase, step or tensor; without it module, or operator where the file knows no modules")
      ->check(CLI::IsMember(names_of(grouping_name)));
  app.add_option("--at", options->at, "text: peak, forward_end, end (of the capture), or maximum (of each figure)")
      ->check(CLI::IsMember(names_of(instant_name)))
      ->capture_default_str();
  app.add_option("--depth", options->depth, "text: how deep into the module tree; without it as deep as fits on a screen")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rows", options->rows, "text: the most rows of a list")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--format", options->format, "text, json or csv")->check(CLI::IsMember({"text", "json", "csv"}))->capture_default_str();
  app.callback([options, &action] {
    action = [options] {
      const Breakdown result = breakdown(analyze(options->input.load(), options->input.card()));
      const bool has_modules = result.by(Grouping::module).size() > 1;
      const Grouping by = options->by.empty() ? (has_modules ? Grouping::module : Grouping::op) : names_of(grouping_name).at(options->by);
      std::string text;
      if (options->format == "json") {
        text = breakdown_json(result);
      } else if (options->format == "csv") {
        text = breakdown_csv(result, by);
      } else {
        text = breakdown_text(result, {colour_wanted(), by, names_of(instant_name).at(options->at), options->depth, options->rows});
      }
      std::fputs(text.c_str(), stdout);
      return kExitYes;
    };
  });
}

}  // namespace gpucast::cli

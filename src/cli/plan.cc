// `gpucast plan`: which number of cards, and which split of the model over them.

#include "src/search/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/machine.h"
#include "src/base/say.h"
#include "src/cli/messages.h"
#include "src/cli/plan_report.h"
#include "src/cli/report_capture.h"
#include "src/cli/run_progress.h"
#include "src/cli/step_source.h"
#include "src/cli/subcommand.h"
#include "src/run/own_ranks.h"
#include "src/search/plan_runs.h"
#include "src/search/prices.h"

namespace gpucast::cli {
namespace {

struct PlanCommandLine {
  std::string machine, gpu, gpus, tokens, deadline, prices, constants, cache, steps, format = "text";
  std::vector<std::string> vary, require, command;
  double cpu_speed = 1, confidence = kDefaultConfidence;
  bool fresh = false;
};

// "20B", "300M", "1.5T".
double read_amount(const std::string& text) {
  char* unit = nullptr;
  const double number = std::strtod(text.c_str(), &unit);
  const std::string_view word(unit);
  const double scale = word.empty() ? 1 : word == "k" || word == "K" ? 1e3 : word == "M" ? 1e6 : word == "B" ? 1e9 : word == "T" ? 1e12 : 0;
  if (unit == text.c_str() || scale == 0 || !(number > 0) || !std::isfinite(number))
    throw Error("--tokens is a number of tokens", text, "such as --tokens 20B (k, M, B, T)");
  return number * scale;
}

// "3d", "12h", "90m", "30s", in nanoseconds.
double read_time(const std::string& text) {
  char* unit = nullptr;
  const double number = std::strtod(text.c_str(), &unit);
  const std::string_view word(unit);
  const double scale = word == "d" ? 86400e9 : word == "h" ? 3600e9 : word == "m" ? 60e9 : word == "s" ? 1e9 : 0;
  if (unit == text.c_str() || scale == 0 || !(number > 0) || !std::isfinite(number))
    throw Error("--deadline is a time", text, "such as --deadline 3d (d, h, m, s)");
  return number * scale;
}

search::PlanSpace space_of(const PlanCommandLine& options, const Machine& machine) {
  if (const auto launcher = run::launcher_in(options.command))
    throw Error(fmt::format("`plan` starts the ranks itself, and {} would, too", *launcher), "",
                "give the command of one rank, such as: gpucast plan --gpus 8..64 -- python train.py");
  search::PlanSpace space;
  space.command = options.command;
  space.node_cards = machine.links.cards;
  space.gpus = search::parse_counts(options.gpus, "--gpus");
  const search::KnownParameters known = search::known_parameters(options.command);
  for (const std::string& text : options.vary) {
    space.parameters.push_back(search::parse_parameter(text, known.all));
    for (size_t i = 0; i + 1 < space.parameters.size(); ++i)
      if (space.parameters[i].name == space.parameters.back().name)
        throw Error(fmt::format("--vary names '{}' twice", space.parameters[i].name), text, "name all its values at once");
  }
  if (options.vary.empty())
    for (const std::string& name : known.varied)
      space.parameters.push_back(search::parse_parameter(fmt::format("{}=1..{}", name, space.node_cards), known.all));
  if (!known.program.empty() && options.vary.empty()) say("gpucast: this is {}: its parallel sizes are varied\n", known.program);
  for (const std::string& text : options.require) space.constraints.emplace_back(text);
  search::add_usual_constraint(&space);
  return space;
}

// Throws Error for what can be known before the first run.
std::vector<search::PlanChoice> choices_of(const search::PlanSpace& space, const Machine& machine) {
  if (space.gpus.back() > machine.links.cards && machine.links.network_cards == 0)
    throw Error(fmt::format("{} has {} cards and no network, and --gpus names {}", machine.name, machine.links.cards, space.gpus.back()),
                "", "name a machine with network cards: --machine, `gpucast machines`");
  std::vector<search::PlanChoice> out = allowed_choices(space);
  if (!out.empty()) return out;
  std::string texts;
  for (const search::Expression& constraint : space.constraints) {
    search::PlanSpace alone = space;
    alone.constraints = {constraint};
    const size_t left = allowed_choices(alone).size();
    texts += fmt::format("{}'{}' alone leaves {}", texts.empty() ? "" : ", ", constraint.text(), left);
  }
  throw Error("the constraints exclude all plans", texts,
              "name other values (--vary), numbers of cards (--gpus) or constraints (--require)");
}

int plan(const PlanCommandLine& options) {
  check_confidence(options.confidence);
  PlanReport report;
  const std::string card = options.gpu.empty() && options.machine.empty() ? kDefaultGpu : options.gpu;
  report.machine = options.machine.empty() ? usual_machine(find_gpu(card)) : read_machine(options.machine);
  report.gpu = find_gpu(card.empty() ? report.machine.gpu_ids.front() : card);
  check_machine_has(report.machine, report.gpu);
  report.space = space_of(options, report.machine);
  const std::vector<search::PlanChoice> choices = choices_of(report.space, report.machine);
  if (!options.tokens.empty()) report.goal.tokens = read_amount(options.tokens);
  if (!options.deadline.empty()) report.goal.deadline_ns = read_time(options.deadline);
  if (report.goal.deadline_ns > 0 && report.goal.tokens == 0)
    throw Error("--deadline needs to know how much is trained until then", options.deadline, "such as --tokens 20B");
  if (!options.prices.empty()) {
    report.offer = offer_for(report.machine, report.gpu.id, report.space.gpus.back(), search::read_offers(options.prices));
    if (!report.offer)
      throw Error(fmt::format("there is no price of {} or of {}", report.machine.id, report.gpu.id), options.prices,
                  "add one to a file of yours");
    report.goal.price_per_hour = [offer = *report.offer](int64_t gpus) { return price_per_hour(offer, gpus); };
  }
  RunProgress progress;
  search::Runs runs({options.cache, options.fresh, 0, [&](const search::Run& run) { progress.run_ended(run); }});
  search::PlanRuns source(
      report.space, {report.machine, report.gpu, options.cpu_speed, read_constants(options.constants), options.confidence, options.steps},
      &runs);
  say("gpucast: {} plans, for {} of {}\n", choices.size(), report.gpu.id, report.machine.name);
  report.found = find_plans(report.space, choices, report.goal, &source);
  if (report.goal.tokens > 0 && !report.found.by_tokens && has_answer(report.found))
    throw Error("--tokens: the captures do not say how many tokens a step has", options.tokens,
                "leave out --tokens and --deadline: the plans are then compared by samples");
  const std::string text = options.format == "json" ? plan_json(report) : plan_text(report, colour_wanted());
  std::fputs(text.c_str(), stdout);
  return has_answer(report.found) ? kExitYes : kExitNo;
}

}  // namespace

void declare_plan(Arguments& arguments) {
  auto options = std::make_shared<PlanCommandLine>();
  arguments.option("--machine", &options->machine,
                   "the machine, named as in `gpucast machines`, or a file; default: the usual one of --gpu");
  arguments.option("--gpu", &options->gpu, "the card, where the machine may have several");
  arguments.option("--gpus", &options->gpus, "numbers of cards: 8..64 is 8, 16, 32, 64; or 8,24").required();
  arguments
      .option("--vary", &options->vary,
              "a value with a flag of the script: NAME=FLAG:VALUES, such as tp=--tp:1,2,4,8 or pp=--pp:1..8; a known program's flag may be "
              "left "
              "out (tp=1,2); may be given again")
      .one_each_time();
  arguments
      .option("--require", &options->require, "what must hold of world, nodes, names of --vary and flags with a number; may be given again")
      .one_each_time();
  arguments.option("--tokens", &options->tokens, "how many tokens are trained, such as 20B: prints time and price for them");
  arguments.option("--deadline", &options->deadline, "until when, such as 3d or 12h");
  arguments.option("--prices", &options->prices, "a file of prices, or `example`");
  arguments.option("--cpu-speed", &options->cpu_speed, "how much faster the training machine's host is than this one")
      .positive()
      .shows_default();
  arguments.option("--steps", &options->steps, "of each run");
  declare_confidence(arguments, &options->confidence);
  arguments.option("--constants", &options->constants, "a file of constants, over the built-in ones");
  arguments.option("--cache", &options->cache, "a folder for the runs' captures; default: ~/.cache/gpucast/runs");
  arguments.flag("--fresh", &options->fresh, "run again what is in the cache");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.command(&options->command);
  arguments.action([options] {
    try {
      return plan(*options);
    } catch (const search::Interrupted&) {
      say("gpucast: interrupted; the same command goes on from here\n");
      return static_cast<int>(kExitInterrupted);
    }
  });
}

}  // namespace gpucast::cli

// `gpucast time`: how long a step, or each operation of a list, takes on a card.

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/machine.h"
#include "gpucast/step_time.h"
#include "gpucast/whole_run.h"
#include "src/base/comma_words.h"
#include "src/base/json.h"
#include "src/base/say.h"
#include "src/cli/job_files.h"
#include "src/cli/messages.h"
#include "src/cli/step_source.h"
#include "src/cli/subcommand.h"
#include "src/run/clock_run.h"
#include "src/run/own_ranks.h"
#include "src/time/duration.h"
#include "src/time/operations_file.h"

namespace gpucast::cli {
namespace {

struct TimeCommand {
  StepSource step;
  std::string constants, operations, known, format = "text";
  std::string workers, storage, prices, machine, scale, trace, html;
  double cpu_speed = 1, cores = 0;
  bool force = false, run = false;
  int64_t epoch_steps = 0, epochs = 0, steps_total = 0;
};

constexpr const char* kOneCard = "--run is for a training on one card so far";
constexpr const char* kOneCardToDo = "leave out --run: the step's time and an epoch's are of all ranks";

void print_operations(const std::string& path, const CardRates& card) {
  fmt::memory_buffer out;
  const auto flush = [&out] {
    std::fwrite(out.data(), 1, out.size(), stdout);
    out.clear();
  };
  read_operations(path, [&](const Operation& operation) {
    const Duration duration = operation_duration(operation, card);
    fmt::format_to(std::back_inserter(out),
                   "{{\"expected_ns\":{:.1f},\"low_ns\":{:.1f},\"high_ns\":{:.1f},\"bound\":\"{}\",\"ideal_ns\":{:.1f}}}\n",
                   duration.expected_ns, duration.low_ns, duration.high_ns, bound_name(duration.bound), duration.ideal_ns);
    if (out.size() > (1U << 16)) flush();
  });
  flush();
}

// "rtx3090=412ms"; s and us are also allowed.
void read_known(const std::string& text, StepTimeOptions* options) {
  const size_t equals = text.find('=');
  const char* number = equals == std::string::npos ? "" : text.c_str() + equals + 1;
  char* unit = nullptr;
  const double value = std::strtod(number, &unit);
  const std::string_view named(unit);
  const double scale = named == "s" ? 1e9 : named == "ms" ? 1e6 : named == "us" ? 1e3 : 0;
  constexpr double kMostNs = 1e15;  // 11 days
  if (unit == number || !(value > 0) || scale == 0 || !(value * scale <= kMostNs))
    throw Error("--known is a card and the time of a step on it", text, "such as --known rtx3090=412ms");
  options->known_gpu = find_gpu(text.substr(0, equals)).id;
  options->known_step_ns = value * scale;
}

// "a100-80=1.8,h100-80=3.9".
std::map<std::string, double> read_prices(const std::string& text) {
  std::map<std::string, double> out;
  if (text.empty()) return out;
  for (const std::string& word : comma_words(text)) {
    const size_t equals = word.find('=');
    char* stop = nullptr;
    const double price = equals == std::string::npos ? 0 : std::strtod(word.c_str() + equals + 1, &stop);
    if (equals == std::string::npos || *stop != '\0' || !(price > 0) || !std::isfinite(price))
      throw Error("--price is a card and what an hour of it costs", word, "such as --price a100-80=1.8,h100-80=3.9");
    out[find_gpu(word.substr(0, equals)).id] = price;
  }
  return out;
}

// "4", "2,4,8".
std::vector<int64_t> read_workers(const std::string& text) {
  constexpr int64_t kMost = 1024;
  std::vector<int64_t> out;
  if (text.empty()) return out;
  for (const std::string& word : comma_words(text)) {
    char* stop = nullptr;
    const int64_t workers = std::strtoll(word.c_str(), &stop, 10);
    if (word.empty() || *stop != '\0' || workers < 0 || workers > kMost)
      throw Error(fmt::format("--workers: '{}' is no number of workers", word), "", "such as 4, or 0,2,4,8");
    out.push_back(workers);
  }
  return out;
}

// The machine of --machine, which must have the cards of --gpu. If it has one kind of card, this is the default of --gpu.
std::optional<Machine> machine_for(const std::string& name_or_file, std::string* gpus) {
  if (name_or_file.empty()) return std::nullopt;
  Machine machine = read_machine(name_or_file);
  if (gpus->empty() && machine.gpu_ids.size() == 1) *gpus = machine.gpu_ids.front();
  if (!gpus->empty())
    for (const Gpu& gpu : cards_of(*gpus)) check_machine_has(machine, gpu);
  return machine;
}

// "8,16,64", in this order, each more than the one before.
std::vector<int64_t> read_scale(const std::string& text) {
  constexpr int64_t kMost = 1 << 20;
  std::vector<int64_t> out;
  for (const std::string& word : comma_words(text)) {
    char* stop = nullptr;
    const int64_t ranks = std::strtoll(word.c_str(), &stop, 10);
    if (word.empty() || *stop != '\0' || ranks < 1 || ranks > kMost || (!out.empty() && ranks <= out.back()))
      throw Error(fmt::format("--scale names numbers of cards, from few to many, and '{}' is wrong there", word), text,
                  "such as --scale 1,8,64");
    out.push_back(ranks);
  }
  return out;
}

StepTimes times_of(const StepOnCards& observed, StepTimeOptions wanted) {
  wanted.gpus = observed.gpus;
  std::vector<const Facts*> ranks = pointers_to(observed.others);
  ranks.insert(ranks.begin(), observed.facts.get());
  return step_times(ranks, wanted);
}

// Whether the script changes its weights itself: its steps are backward passes.
bool steps_by_hand(const Trace& trace) {
  const bool steps = std::ranges::any_of(trace.marks, [](const Mark& mark) { return mark.kind == MarkKind::step; });
  return steps && std::ranges::none_of(trace.marks, [](const Mark& mark) { return mark.phase == MarkedPhase::optimizer_step; });
}

// Unset: interrupted. `by_hand`: see steps_by_hand().
std::optional<StepTimes> times_of(const StepSource& source, const StepTimeOptions& wanted, bool* by_hand = nullptr) {
  const std::optional<StepOnCards> observed = observe_step(source);
  if (!observed) return std::nullopt;
  if (by_hand != nullptr) {
    if (!observed->others.empty()) throw Error(kOneCard, "", kOneCardToDo);
    *by_hand = steps_by_hand(observed->facts->trace);
  }
  return times_of(*observed, wanted);
}

ScalePoint scale_point(const CardTime& card, int64_t ranks, const std::vector<ScalePoint>& before) {
  ScalePoint out{.ranks = ranks, .step = card.step, .samples_per_s = card.samples_per_s};
  if (card.job) {
    const RankStep& busiest = card.job->captured[card.job->busiest];
    out.nodes = card.job->nodes;
    out.exposed_ns = busiest.exposed_ns;
    out.waiting_ns = busiest.waiting_ns;
  }
  if (before.empty() || before.front().samples_per_s <= 0) return out;
  const double of_first = before.front().samples_per_s / static_cast<double>(before.front().ranks);
  out.efficiency = out.samples_per_s / static_cast<double>(ranks) / of_first;
  out.of_more_cards = (out.samples_per_s - before.back().samples_per_s) / static_cast<double>(ranks - before.back().ranks) / of_first;
  return out;
}

// Throws Error for what cannot be scaled, before anything is captured.
void check_scale(const TimeCommand& options, const StepSource& source, const StepTimeOptions& wanted, const std::vector<int64_t>& scale) {
  if (source.world_size > 0)
    throw Error("--scale says how many ranks the job has, and so does --world-size", options.scale, "leave out --world-size");
  if (const auto launcher = run::launcher_in(source.what))
    throw Error(fmt::format("--scale starts the ranks itself, and {} would, too", *launcher), options.scale,
                "give the command of one rank, such as: --scale 1,8 -- python train.py");
  const Machine& machine =
      wanted.machine ? *wanted.machine : usual_machine(source.gpus.empty() ? find_gpu(kDefaultGpu) : cards_of(source.gpus).front());
  if (scale.back() > machine.links.cards && machine.links.network_cards == 0)
    throw Error(fmt::format("{} has {} cards and no network, and --scale names {}", machine.name, machine.links.cards, scale.back()),
                options.scale, "name a machine with network cards: --machine, `gpucast machines`");
}

// Captures with more or fewer replicas of the model.
StepTimes scaled_captures(const TimeCommand& options, const StepSource& source, StepTimeOptions wanted) {
  const StepOnCards observed = *observe_step(source);
  std::optional<StepTimes> out;
  std::vector<ScalePoint> points;
  for (const int64_t ranks : read_scale(options.scale)) {
    wanted.ranks = ranks;
    StepTimes times = times_of(observed, wanted);
    points.push_back(scale_point(times.cards.front(), ranks, points));
    if (!out) out = std::move(times);
  }
  out->scale = std::move(points);
  return *out;
}

// Captures the command once for each number of cards.
std::optional<StepTimes> scaled_times(const TimeCommand& options, StepSource source, const StepTimeOptions& wanted) {
  const std::vector<int64_t> scale = read_scale(options.scale);
  check_scale(options, source, wanted, scale);
  if (names_captures(source)) return scaled_captures(options, source, wanted);
  std::optional<StepTimes> out;
  std::vector<ScalePoint> points;
  for (const int64_t ranks : scale) {
    source.world_size = ranks;
    std::optional<StepTimes> times = times_of(source, wanted);
    if (!times) return std::nullopt;
    const std::optional<JobStep>& job = times->cards.front().job;
    if (job && !job->missing.empty())
      throw Error(fmt::format("with {} ranks, rank{} {} {} missing: the stages of a pipeline do not stand for each other", ranks,
                              job->missing.size() == 1 ? "" : "s", fmt::join(job->missing, ", "), job->missing.size() == 1 ? "is" : "are"),
                  options.scale, "ask for one number of cards at a time, with a rank of each stage: --world-size N --ranks 0,1,..");
    if (job && ranks == scale.back())
      for (const std::string& note : job->notes) say("gpucast: with {} ranks: {}\n", ranks, note);
    points.push_back(scale_point(times->cards.front(), ranks, points));
    if (!out) out = std::move(times);
  }
  out->scale = std::move(points);
  return out;
}

// The script runs once more, on the first card's clock.
WholeRun time_run(const TimeCommand& options, const StepSource& source, const StepTimes& times, bool by_hand) {
  run::RunSettings settings;
  settings.gpu = source.gpus.empty() ? find_gpu(kDefaultGpu) : cards_of(source.gpus).front();
  settings.gpu_chosen = true;
  settings.command = source.what;
  settings.whole_run = true;
  settings.run_epochs = options.epochs;
  settings.run_steps = options.steps_total;
  settings.run_by_hand = by_hand;
  say("gpucast: the script on {}'s clock, with fewer batches\n", settings.gpu.id);
  const run::ClockedRun clocked = run::run_with_clock(settings, true, read_constants(options.constants));
  if (clocked.record.empty())
    throw Error(fmt::format("the run on the card's clock trained nothing (exit code {})", clocked.exit_code), "",
                "the lines above say why; `gpucast run --warp -- COMMAND` runs it whole");
  const CardTime& card = times.cards.front();
  const std::string end = Json::parse(clocked.record).value("end", "");
  if (end == "script_end" && clocked.exit_code != 0)
    throw Error(fmt::format("the script failed on the card's clock (exit code {})", clocked.exit_code), "", "what it printed is above");
  WholeRun run = whole_run(clocked.record, card.step, {options.epochs, options.steps_total});
  if (card.power) run.energy = run_energy(run, *card.power);
  return run;
}

void check_run(const TimeCommand& options, const StepSource& source) {
  if (!options.run) {
    if (options.epochs > 0 || options.steps_total > 0) throw Error("--epochs and --steps-total are for the whole run", "", "add --run");
    return;
  }
  if (names_captures(source))
    throw Error("--run runs the script, and this is a capture", source.what.front(), "give the command: gpucast time --run -- COMMAND");
  if (source.world_size > 0 || !options.scale.empty() || run::launcher_in(source.what)) throw Error(kOneCard, "", kOneCardToDo);
  if (options.epochs > 0 && options.steps_total > 0)
    throw Error("--epochs and --steps-total both say how long the training is", "", "give one of them");
}

int report(const TimeCommand& options) {
  JobFiles files(options.trace, options.html, options.force);  // before the long work, because it may fail
  StepTimeOptions wanted;
  wanted.job_slices = files.wanted();
  StepSource source = options.step;
  wanted.machine = machine_for(options.machine, &source.gpus);
  wanted.constants_json = read_constants(options.constants);
  wanted.cpu_speed = options.cpu_speed;
  if (!options.known.empty()) read_known(options.known, &wanted);
  wanted.price_per_hour = read_prices(options.prices);
  wanted.epoch_steps = static_cast<double>(options.epoch_steps);
  wanted.cores = options.cores;
  wanted.workers = read_workers(options.workers);
  if (!options.storage.empty()) wanted.storage = find_storage(options.storage);
  check_run(options, source);
  source.leaves_no_files = options.run;
  bool by_hand = false;
  std::optional<StepTimes> times =
      options.scale.empty() ? times_of(source, wanted, options.run ? &by_hand : nullptr) : scaled_times(options, source, wanted);
  if (!times) return kExitInterrupted;
  if (options.run) times->run = time_run(options, source, *times, by_hand);
  const std::string text = options.format == "json" ? step_times_json(*times) : step_times_text(*times, colour_wanted());
  std::fputs(text.c_str(), stdout);
  files.write(*times);
  return kExitYes;
}

}  // namespace

void declare_time(Arguments& arguments) {
  auto options = std::make_shared<TimeCommand>();
  options->step.measure_loader = true;
  options->step.all_ranks = true;
  declare_step_source(arguments, &options->step);
  arguments.option("--gpus", &options->step.gpus_of_node, "of a command: the number of such cards in the machine").positive();
  arguments
      .option("--world-size", &options->step.world_size, "of a command: run it as --ranks of a job of this many, as `gpucast run` does")
      .positive();
  arguments.option("--ranks", &options->step.ranks, "which of them, e.g. 0,8");
  arguments.option("--scale", &options->scale,
                   "the job on these numbers of cards, such as 1,8,64. A command is captured with each world size; captures get more or "
                   "fewer replicas of their model");
  arguments.option("--known", &options->known,
                   "a measured step on some card, such as rtx3090=412ms, which corrects what is said of others");
  arguments.option("--price", &options->prices,
                   "what an hour of a card costs, such as a100-80=1.8,h100-80=3.9: prints the cost of an epoch on all cards of the job");
  arguments
      .option("--epoch-steps", &options->epoch_steps, "steps of an epoch; default: from the number of batches in the script's DataLoader")
      .positive();
  arguments.option("--cpu-speed", &options->cpu_speed, "how much faster the training machine's host is than this one")
      .positive()
      .shows_default();
  arguments.option("--cores", &options->cores, "the training machine's CPU cores; default: this machine's").positive();
  arguments.option("--workers", &options->workers,
                   "number of workers of the script's DataLoader, instead of its own; several, with commas, are compared");
  arguments.option("--storage", &options->storage,
                   "the disk that the training data is read from: nvme, ssd, hdd, nfs, or a bandwidth such as 200MB/s");
  arguments.option("--machine", &options->machine,
                   "the machine with the cards, named as in `gpucast machines`, or a file; default: the card's usual one");
  arguments.option("--trace", &options->trace,
                   "writes the job's step as a trace for Perfetto, a process for each rank, to this file (.json or .json.gz); to a "
                   "folder (FOLDER/): a file for each rank, as PyTorch's profiler writes them");
  arguments.option("--html", &options->html, "writes the job's step as a page for the browser to this file: its ranks on one clock");
  arguments.flag("--force", &options->force, "overwrite the files of --trace and --html");
  arguments.flag("--run", &options->run,
                 "of a command: also the time of the whole training, with evaluations, checkpoints and starts of loaders");
  arguments.option("--epochs", &options->epochs, "with --run: passes over the training data; default: the script's own").positive();
  arguments.option("--steps-total", &options->steps_total, "with --run: optimizer steps; default: the script's own").positive();
  arguments.option("--constants", &options->constants, "a file of constants, over the built-in ones");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.option("--operations", &options->operations,
                   "instead of a step: a file of operations, one JSON object a line; - is standard input");
  arguments.action([options] {
    if (!options->operations.empty()) {
      if (!options->step.what.empty() || !options->known.empty() || !options->workers.empty() || !options->storage.empty() ||
          !options->prices.empty())
        throw Error("--operations replaces a step, and options of a step were given too", options->operations,
                    "leave out the capture or command, --known, --price, --workers and --storage");
      std::string gpus = options->step.gpus;
      const std::optional<Machine> machine = machine_for(options->machine, &gpus);
      const Gpu& card = one_card(gpus, "--operations takes one card: a line has one answer");
      if (machine) check_machine_has(*machine, card);
      CardRates rates = card_rates(card, read_constants(options->constants));
      if (machine) rates.links = machine->links;
      print_operations(options->operations, rates);
      return static_cast<int>(kExitYes);
    }
    if (options->step.what.empty())
      throw Error("nothing was named", "", "gpucast time FILE, gpucast time -- COMMAND, or gpucast time --operations FILE");
    return report(*options);
  });
}

}  // namespace gpucast::cli

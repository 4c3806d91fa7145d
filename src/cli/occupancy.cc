// `gpucast occupancy`: how well a step fills a card.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/job_occupancy.h"
#include "gpucast/sweep.h"
#include "src/base/demangled.h"
#include "src/base/json.h"
#include "src/base/say.h"
#include "src/cli/dnn_occu.h"
#include "src/cli/messages.h"
#include "src/cli/occupancy_sweep.h"
#include "src/cli/step_source.h"
#include "src/cli/subcommand.h"
#include "src/occupancy/launches_file.h"
#include "src/occupancy/occupancy_card.h"
#include "src/occupancy/wheel.h"
#include "src/run/capture_file.h"
#include "src/run/session_folder.h"

namespace gpucast::cli {
namespace {

struct OccupancyCommand {
  StepSource step;
  std::string wheel, constants, launches, sweep, html, method = "computed", weights, format = "text";
  double cpu_speed = 1;
  bool force = false;
};

// Each line is one JSON object. Lines are printed in blocks.
class Lines {
 public:
  ~Lines() { flush(); }
  fmt::memory_buffer& buffer_for_line() {
    if (out_.size() > (1U << 16)) flush();
    return out_;
  }

 private:
  void flush() {
    std::fwrite(out_.data(), 1, out_.size(), stdout);
    out_.clear();
  }
  fmt::memory_buffer out_;
};

void print_launches(const std::string& path, const OccupancyCard& card) {
  Lines lines;
  read_launches(path, [&](const LaunchRow& launch, const auto& where) {
    const Occupancy of = occupancy(card, launch.kernel, launch.launch);
    if (of.resident.blocks == 0 && launch.launch.blocks > 0) {
      throw Error(fmt::format("this card cannot launch a block of {} threads with {} registers each and {} bytes of shared memory",
                              launch.launch.block_threads, launch.kernel.registers,
                              launch.kernel.static_shared_bytes + launch.launch.dynamic_shared_bytes),
                  where(), fmt::format("its limit is {}", occupancy_limit_name(of.resident.limit)));
    }
    const KinetoOccupancy kineto = kineto_occupancy(card, launch.kernel, launch.launch);
    fmt::format_to(std::back_inserter(lines.buffer_for_line()),
                   "{{\"blocks_per_sm\":{},\"warps_per_sm\":{},\"limit\":\"{}\",\"theoretical\":{},\"achieved\":{},\"sm_active\":{},"
                   "\"waves\":{},\"tail\":{},\"kineto\":{{\"blocks_per_sm\":{},\"warps_per_sm\":{},\"percent\":{}}}}}\n",
                   of.resident.blocks, of.warps, occupancy_limit_name(of.resident.limit), of.theoretical, of.achieved, of.sm_active,
                   of.waves, of.tail, kineto.blocks_per_sm, kineto.warps_per_sm, kineto.percent);
  });
}

void print_kernels(const std::string& wheel, const Gpu& gpu) {
  const WheelKernels read = wheel_kernels(wheel, gpu.compute_major, gpu.compute_minor, kernel_cache_folder());
  Lines lines;
  for (const KernelTable::Row& row : read.kernels.rows()) {
    const std::string name(read.kernels.name(row));
    fmt::format_to(std::back_inserter(lines.buffer_for_line()),
                   "{{\"kernel\":{},\"name\":{},\"registers\":{},\"static_shared_bytes\":{},\"local_bytes\":{}}}\n", Json(name).dump(),
                   Json(demangled(name)).dump(), row.resources.registers, row.resources.static_shared_bytes, row.resources.local_bytes);
  }
  say("gpucast: {} kernels for compute capability {}.{}{}\n", read.kernels.size(), gpu.compute_major, gpu.compute_minor,
      read.counts.unreadable > 0 ? fmt::format("; {} files of machine code are damaged and left out", read.counts.unreadable) : "");
}

int report_sweep(const OccupancyCommand& options, const JobOccupancyOptions& wanted) {
  // Checks the page first, because it may be refused and a sweep takes long. The check leaves no file.
  if (!options.html.empty()) {
    std::error_code none;
    if (std::filesystem::is_directory(options.html, none))
      throw Error("--html is a folder", options.html, "name a file: --html sweep.html");
    (void)sweep_html({});  // throws if this build cannot write pages
    const run::CaptureFile may_be_written(options.html, options.force);
  }
  const std::optional<Sweep> sweep = run_sweep(options.sweep, options.step, wanted);
  if (!sweep) return kExitInterrupted;
  const std::string text = options.format == "json" ? sweep_json(*sweep) : sweep_text(*sweep, colour_wanted());
  std::fputs(text.c_str(), stdout);
  // Without a result no page is written, and an older page stays.
  if (std::none_of(sweep->rows.begin(), sweep->rows.end(), [](const SweepRow& row) { return row.timed(); }))
    throw Error("no value could be timed", "--sweep " + options.sweep,
                "the table says why, value by value; `gpucast run -- COMMAND` says more");
  if (!options.html.empty()) {
    run::CaptureFile page(options.html, options.force);
    std::ofstream out(page.path(), std::ios::binary);
    out << sweep_html(*sweep);
    if (!out.flush()) throw Error("the page cannot be written", options.html, "is the disk full?");
    say("gpucast: the page is in {}\n", page.keep());
  }
  return kExitYes;
}

// Refuses options that --launches would ignore.
void check_launches_alone(const OccupancyCommand& options) {
  const std::string hint = "leave out one of them";
  if (!options.step.what.empty())
    throw Error("--launches replaces a step, and a step was given too", fmt::format("{}", fmt::join(options.step.what, " ")), hint);
  if (!options.sweep.empty()) throw Error("--launches replaces a step, and a sweep was given too", "--sweep " + options.sweep, hint);
  if (!options.wheel.empty()) throw Error("--launches replaces a step, and a wheel was given too", "--wheel " + options.wheel, hint);
}

int report(const OccupancyCommand& options) {
  JobOccupancyOptions wanted;
  wanted.constants_json = read_constants(options.constants);
  wanted.cpu_speed = options.cpu_speed;
  wanted.wheel = options.wheel;
  wanted.cache = kernel_cache_folder();
  if (!options.sweep.empty()) return report_sweep(options, wanted);
  StepSource step = options.step;
  std::optional<run::SessionFolder> graph_folder;
  std::string weights;
  if (options.method == "dnn-occu") {
    weights = dnn_occu_weights(options.weights);
    graph_folder.emplace();
    step.graph = graph_folder->path + "/graph.json";
  }
  std::optional<StepOnCards> observed = observe_step(step);
  if (!observed) return kExitInterrupted;
  wanted.gpus = std::move(observed->gpus);
  JobOccupancy job = job_occupancy(*observed->facts, wanted);
  if (!weights.empty()) {
    const std::vector<double> guesses = dnn_occu(step.graph, weights, wanted.gpus);
    for (size_t c = 0; c < guesses.size(); ++c) job.cards[c].dnn_occu = guesses[c];
  }
  const std::string text = options.format == "json" ? job_occupancy_json(job) : job_occupancy_text(job, colour_wanted());
  std::fputs(text.c_str(), stdout);
  return kExitYes;
}

}  // namespace

void declare_occupancy(Arguments& arguments) {
  auto options = std::make_shared<OccupancyCommand>();
  declare_step_source(arguments, &options->step);
  arguments.option("--wheel", &options->wheel,
                   "the folder of the PyTorch whose kernels run; without it the capture's. Alone: list its kernels");
  arguments.option("--cpu-speed", &options->cpu_speed, "how much faster the training machine's host is than this one")
      .positive()
      .shows_default();
  arguments.option("--constants", &options->constants, "a file of constants of time, over the built-in ones");
  arguments.option("--method", &options->method, "computed; or dnn-occu: also print a network's prediction")
      .one_of({"computed", "dnn-occu"})
      .shows_default();
  arguments.option("--weights", &options->weights, "weights of DNN-occu's network, instead of gpucast's own");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.option("--launches", &options->launches, "instead of a step: a file of launches, one JSON object a line; - is standard input");
  arguments.option("--sweep", &options->sweep, "NAME=A,B,C: run the command once for each value, which replaces {NAME}, and compare");
  arguments.option("--html", &options->html, "of a sweep: write its table and curves to this page");
  arguments.flag("--force", &options->force, "overwrite the page of --html");
  arguments.action([options] {
    if (!options->html.empty() && options->sweep.empty()) throw Error("--html draws a sweep, and there is no --sweep", options->html);
    if (options->force && options->html.empty())
      throw Error("--force overwrites a page, and there is no --html", "--force", "leave it out");
    if (!options->weights.empty() && options->method != "dnn-occu")
      throw Error("--weights are for a network, and no network is used", options->weights, "--method dnn-occu");
    if (options->method == "dnn-occu" && (!options->sweep.empty() || !options->launches.empty()))
      throw Error("--method dnn-occu is for one step", options->sweep + options->launches, "leave out --sweep and --launches");
    if (!options->launches.empty()) {
      check_launches_alone(*options);
      print_launches(options->launches, occupancy_card(one_card(options->step.gpus, "--launches is for one card")));
      return static_cast<int>(kExitYes);
    }
    if (options->step.what.empty() && !options->wheel.empty()) {
      print_kernels(options->wheel, one_card(options->step.gpus, "--wheel without a step is for one card"));
      return static_cast<int>(kExitYes);
    }
    if (options->step.what.empty())
      throw Error("nothing was named", "", "gpucast occupancy FILE, gpucast occupancy -- COMMAND, or gpucast occupancy --launches FILE");
    return report(*options);
  });
}

}  // namespace gpucast::cli

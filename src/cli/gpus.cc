// `gpucast gpus`: the device table; with --for, the cards for a job.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/base/gpu_json.h"
#include "src/base/gpu_variant.h"
#include "src/base/say.h"
#include "src/cli/messages.h"
#include "src/cli/rent_report.h"
#include "src/cli/report_capture.h"
#include "src/cli/run_progress.h"
#include "src/cli/step_source.h"
#include "src/cli/subcommand.h"
#include "src/run/own_ranks.h"
#include "src/search/rent.h"
#include "src/search/run_problem.h"
#include "src/search/runs.h"

namespace gpucast::cli {
namespace {

constexpr double kGiB = 1 << 30, kMiB = 1 << 20;

std::string rate(const Gpu& gpu, const char* type) {
  const auto found = gpu.peak_flop_per_s.find(type);
  return found == gpu.peak_flop_per_s.end() ? "-" : fmt::format("{:.1f}", found->second / 1e12);
}

void print_text() {
  fmt::print("{:<18} {:<53} {:>4} {:>4} {:>8} {:>6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>7}\n", "", "", "", "", "memory", "GB/s", "L2",
             "TFLOP/s", "", "", "", "");
  fmt::print("{:<18} {:<53} {:>4} {:>4} {:>8} {:>6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>7}\n", "--gpu", "name", "cap.", "SMs", "GiB", "",
             "MiB", "fp32", "tf32", "fp16", "fp8", "int8");
  for (const Gpu& gpu : gpu_table()) {
    fmt::print("{:<18} {:<53} {:>4} {:>4} {:>8} {:>6.0f} {:>5.0f} {:>6} {:>6} {:>6} {:>6} {:>7}\n", gpu.id, gpu.name,
               fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor), gpu.multiprocessors,
               fmt::format("{}{:.2f}", gpu.total_memory_measured ? "" : "~", static_cast<double>(gpu.total_memory_bytes) / kGiB),
               gpu.bandwidth_bytes_per_s / 1e9, static_cast<double>(gpu.l2_bytes) / kMiB, rate(gpu, "fp32"), rate(gpu, "tf32"),
               rate(gpu, "fp16"), rate(gpu, "fp8"), rate(gpu, "int8"));
  }
  fmt::print(
      "\nMemory as CUDA reports it (~ estimated). Peak rates without sparsity; bf16 as fp16 from capability 8.0 on.\n"
      "Also: a lower power limit, rtx4090@300W; a MIG slice, a100-80@3g.40gb; your own card in a file, my_card.json.\n"
      "Exact figures, limits and sources: gpucast gpus --show NAME, or --format json\n");
}

std::vector<std::string> slice_names(const Gpu& gpu) {
  std::vector<std::string> names;
  for (const MigSize& size : mig_sizes(gpu)) names.push_back(size.name);
  return names;
}

Json gpu_row(const Gpu& gpu) {
  Json row;
  row["id"] = gpu.id;
  row["name"] = gpu.name;
  row["architecture"] = gpu.architecture;
  row["compute_capability"] = fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor);
  add_gpu_figures(gpu, &row);
  row["power_w"] = gpu.power_w;
  row["mig_slices"] = slice_names(gpu);
  row["estimated"] = gpu.estimated;
  row["notes"] = gpu.notes;
  row["sources"] = gpu.sources;
  return row;
}

void print_json() {
  Json table;
  table["schema_version"] = 1;
  table["gpus"] = Json::array();
  for (const Gpu& gpu : gpu_table()) table["gpus"].push_back(gpu_row(gpu));
  fmt::print("{}\n", table.dump(2));
}

void print_list(const char* what, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) fmt::print("  {:<18}{}\n", i == 0 ? what : "", lines[i]);
}

void print_gpu(const Gpu& gpu) {
  const auto figure = [](const char* what, const std::string& text) { fmt::print("  {:<18}{}\n", what, text); };
  const auto estimated = [&](const char* field) {
    return std::ranges::find(gpu.estimated, field) != gpu.estimated.end() ? " (estimate)" : "";
  };
  fmt::print("{} ({})\n", gpu.id, gpu.name);
  figure("architecture", fmt::format("{}, compute capability {}.{}", gpu.architecture, gpu.compute_major, gpu.compute_minor));
  figure("multiprocessors", fmt::format("{}{}", gpu.multiprocessors, estimated("multiprocessors")));
  figure("total memory", fmt::format("{} bytes, {:.0f} MiB, {}", gpu.total_memory_bytes, static_cast<double>(gpu.total_memory_bytes) / kMiB,
                                     gpu.total_memory_measured ? "read on a real card" : "estimate"));
  figure("L2", fmt::format("{:g} MiB{}", static_cast<double>(gpu.l2_bytes) / kMiB, estimated("l2_bytes")));
  figure("memory", fmt::format("{:.1f} GB/s, bus {} bits, clock {:g} MHz", gpu.bandwidth_bytes_per_s / 1e9, gpu.memory_bus_width_bits,
                               gpu.memory_clock_khz / 1e3));
  figure("clock", fmt::format("{:g} MHz{}", gpu.clock_khz / 1e3, estimated("clock_khz")));
  std::vector<std::string> rates;
  rates.reserve(gpu.peak_flop_per_s.size());
  for (const auto& [type, flop_per_s] : gpu.peak_flop_per_s) rates.push_back(fmt::format("{} {:.4g}", type, flop_per_s / 1e12));
  figure("TFLOP/s", fmt::format("{}{}", fmt::join(rates, ", "), estimated("peak_flop_per_s")));
  figure("power limit", fmt::format("{:g} W{}", gpu.power_w, estimated("power_w")));
  figure("a multiprocessor",
         fmt::format("{} threads, {} blocks, {} registers, {} KiB shared memory, of it {} KiB for a block",
                     gpu.max_threads_per_multiprocessor, gpu.max_blocks_per_multiprocessor, gpu.registers_per_multiprocessor,
                     gpu.shared_memory_per_multiprocessor_bytes / 1024, gpu.shared_memory_per_block_optin_bytes / 1024));
  if (gpu.mig_slices > 0) figure("MIG slices", fmt::format("{}", fmt::join(slice_names(gpu), ", ")));
  if (gpu.spread_high > 1)
    figure("interval", fmt::format("of a step's time: x {:.2f} to x {:.2f} wider, for the estimates", gpu.spread_low, gpu.spread_high));
  print_list("notes", gpu.notes);
  print_list("sources", gpu.sources);
}

struct GpusCommand {
  StepSource job;
  std::string prices, constants, cache, show, format = "text";
  bool for_job = false, fresh = false;
  search::RentOptions rent;
};

using Capability = std::pair<int, int>;

struct Captured {
  search::RankFacts facts;
  std::string problem;  // if there are none
};

// One run for each compute capability of the rows, on the card with the most memory.
std::map<Capability, Captured> capture_each(const GpusCommand& options, const std::vector<search::RentRow>& rows,
                                            std::vector<std::string>* lines) {
  std::map<Capability, Gpu> largest;
  for (const search::RentRow& row : rows) {
    Gpu& gpu = largest.try_emplace(compute_capability(row.gpu), row.gpu).first->second;
    if (row.gpu.total_memory_bytes > gpu.total_memory_bytes) gpu = row.gpu;
  }
  std::vector<search::RunSpec> specs;
  for (const auto& [capability, gpu] : largest) {
    search::RunSpec& spec = specs.emplace_back();
    spec.command = options.job.what;
    spec.gpu = gpu.id;
    spec.steps = std::to_string(options.job.steps);
    if (options.rent.count > 1) spec.world_size = options.rent.count;
    if (options.rent.count > 1) spec.ranks = "0";
    lines->push_back(run_line(spec));
  }
  RunProgress progress;
  search::Runs runs({options.cache, options.fresh, 0, [&](const search::Run& run) { progress.run_ended(run); }});
  std::map<Capability, Captured> out;
  std::optional<Error> failed;
  for (const search::Run& run : runs.run(specs)) {
    Captured& captured = out[compute_capability(find_gpu(run.spec.gpu))];
    if (run.end == search::RunEnd::captured) {
      captured.facts = facts_of(run);
      continue;
    }
    captured.problem = run_problem(run);
    failed = Error(fmt::format("the command fails on {}: {}", run.spec.gpu, captured.problem), run_line(run.spec),
                   "run this line: it prints all that the script says");
  }
  if (failed && std::ranges::all_of(out, [](const auto& one) { return one.second.facts.empty(); })) throw *failed;
  return out;
}

int rank_for_job(GpusCommand& options) {
  if (options.job.what.empty()) throw Error("--for needs a job", "", "gpucast gpus --for FILE, or gpucast gpus --for -- COMMAND");
  check_confidence(options.rent.confidence);
  if (!options.prices.empty()) options.rent.offers = search::read_offers(options.prices);
  options.rent.constants_json = read_constants(options.constants);
  RentReport report;
  report.rows = rent_rows(options.rent);
  if (names_captures(options.job) || options.job.what.front().ends_with(".gpucast")) {
    options.job.all_ranks = true;
    const StepOnCards observed = *observe_step(options.job);
    search::RankFacts facts = {observed.facts};
    facts.insert(facts.end(), observed.others.begin(), observed.others.end());
    rank_rent(
        options.rent, [&](const Gpu&) { return facts; }, &report.rows);
  } else {
    const auto launcher = run::launcher_in(options.job.what);
    if (launcher && options.rent.count > 0)
      throw Error(fmt::format("--count starts the ranks itself, and {} would, too", *launcher), "", "give the command of one rank");
    const std::map<Capability, Captured> captured = capture_each(options, report.rows, &report.runs);
    const auto facts_for = [&](const Gpu& gpu) {
      const Captured& found = captured.at(compute_capability(gpu));
      if (found.facts.empty()) throw Error(found.problem);
      return found.facts;
    };
    rank_rent(options.rent, facts_for, &report.rows);
  }
  const std::string text = options.format == "json" ? rent_json(report) : rent_text(report, colour_wanted());
  std::fputs(text.c_str(), stdout);
  if (!some_judged(report)) return kExitFailed;
  return some_fit(report) ? kExitYes : kExitNo;
}

}  // namespace

void declare_gpus(Arguments& arguments) {
  auto options = std::make_shared<GpusCommand>();
  arguments.option("--show", &options->show, "one card in full, with sources: a name, or a file as for --gpu");
  arguments.flag("--for", &options->for_job, "rank the cards for a job: a capture, or a command after --");
  arguments.option("FILE|COMMAND", &options->job.what, "the job of --for");
  arguments.option("--prices", &options->prices, "of --for: a file of prices, or `example`: offers of cards and machines are ranked");
  arguments.option("--count", &options->rent.count, "of --for: the number of cards").positive();
  arguments.option("--epoch-steps", &options->rent.epoch_steps, "of --for: steps of an epoch; default: from the script's DataLoader")
      .positive();
  arguments.option("--cpu-speed", &options->rent.cpu_speed, "of --for: how much faster the training machine's host is than this one")
      .positive()
      .shows_default();
  arguments.option("--steps", &options->job.steps, "of --for: how many steps of a command to run").positive().shows_default();
  declare_confidence(arguments, &options->rent.confidence);
  arguments.option("--constants", &options->constants, "a file of constants, over the built-in ones");
  arguments.option("--cache", &options->cache, "a folder for the runs' captures; default: ~/.cache/gpucast/runs");
  arguments.flag("--fresh", &options->fresh, "run again what is in the cache");
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.action([options] {
    if (options->for_job) {
      try {
        return rank_for_job(*options);
      } catch (const search::Interrupted&) {
        return static_cast<int>(kExitInterrupted);
      }
    }
    if (!options->show.empty()) {
      const Gpu& gpu = find_gpu(options->show);
      if (options->format == "json")
        fmt::print("{}\n", gpu_row(gpu).dump(2));
      else
        print_gpu(gpu);
      return static_cast<int>(kExitYes);
    }
    if (!options->job.what.empty())
      throw Error("a job was named without --for", options->job.what.front(), "gpucast gpus --for FILE|-- COMMAND");
    if (options->format == "json") {
      print_json();
    } else {
      print_text();
    }
    return static_cast<int>(kExitYes);
  });
}

}  // namespace gpucast::cli

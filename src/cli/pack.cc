// `gpucast pack`: decides which jobs share a card, and predicts when each job ends.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/base/say.h"
#include "src/cli/messages.h"
#include "src/cli/pack_jobs.h"
#include "src/cli/step_source.h"
#include "src/cli/subcommand.h"
#include "src/pack/best_plan.h"
#include "src/pack/contention.h"
#include "src/pack/policy.h"
#include "src/pack/simulate.h"
#include "src/pack/ways_to_share.h"
#include "src/report/pack/pack_manifest.h"
#include "src/report/pack/pack_report.h"

namespace gpucast::cli {
namespace {

constexpr size_t kMostTogether = 8;

struct PackCommand {
  std::vector<std::string> files;
  std::string gpus, policy, best, mode = "mps", constants, format = "text", output, to;
  ManifestOptions manifest;
  bool fair = false;
  int64_t seed = 0, steps = 1000;
};

// A few jobs that may all be on the only card at once.
bool may_be_together(const std::vector<pack::Job>& jobs, const pack::Cluster& cluster) {
  const auto runs_there = [&](const pack::Job& job) { return job.cards == 1 && job.figures_on(cluster.types.front().id); };
  return cluster.cards.size() == 1 && jobs.size() >= 2 && jobs.size() <= kMostTogether && std::ranges::all_of(jobs, runs_there);
}

// Starts them there at once. Without MIG, whose slices keep jobs apart.
std::optional<Together> together_of(const std::vector<pack::Job>& jobs, const pack::Cluster& cluster,
                                    const pack::PackConstants& constants) {
  if (!may_be_together(jobs, cluster) || cluster.mode == pack::SharingMode::mig) return std::nullopt;
  const Gpu& gpu = cluster.types.front();
  Together out;
  out.capacity_bytes = static_cast<int64_t>(gpu.total_memory_bytes);
  std::vector<pack::KernelMix> mixes;
  for (const pack::Job& job : jobs) {
    const pack::Figures& figures = *job.figures_on(gpu.id);
    out.request_bytes += figures.request_bytes;
    mixes.push_back(kernel_mix_of(figures));
  }
  for (size_t i = 0; i < mixes.size(); ++i)
    for (size_t k = i + 1; k < mixes.size(); ++k)
      out.pairs.push_back({i, k, pack::contention(std::vector{mixes[i], mixes[k]}, gpu, cluster.mode, constants)});
  out.fits = out.request_bytes <= out.capacity_bytes;
  if (out.fits) out.slowdowns = pack::slowdowns(mixes, gpu, cluster.mode, constants);
  return out;
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// Before the long work, so that a path that cannot be written is an error at once.
File open_output(const std::string& path) {
  if (path.empty()) return {stdout, [](std::FILE*) { return 0; }};
  File out(std::fopen(path.c_str(), "w"), &std::fclose);
  if (!out) throw Error("cannot write the plan", path, "does its folder exist, and may you write there?");
  return out;
}

int run_pack(const PackCommand& options) {
  pack::PackOptions wanted;
  const Manifest* manifest = options.to.empty() ? nullptr : &manifest_of(options.to);
  if (!options.best.empty() && !options.policy.empty())
    throw Error("two ways to choose a plan", "--best and --policy", "--best tries all policies; leave one of the two out");
  if (!options.policy.empty()) wanted.policy = &pack::find_policy(options.policy);
  wanted.fair = options.fair;
  wanted.seed = static_cast<uint64_t>(options.seed);
  const std::string constants = options.constants.empty() ? "" : read_constants(options.constants);
  wanted.constants = pack::read_pack_constants(constants);
  const pack::Cluster cluster = pack::parse_cluster(options.gpus, pack::find_sharing_mode(options.mode));
  const File out = open_output(options.output);
  const PackJobs jobs = read_pack_jobs(options.files, cluster, options.steps, constants);
  std::optional<pack::BestPlan> best;
  if (!options.best.empty()) best = pack::best_plan(jobs.jobs, cluster, wanted, pack::find_goal(options.best));
  const pack::Plan plan = best ? best->plan : pack::simulate(jobs.jobs, cluster, wanted);
  const std::optional<Together> together = together_of(jobs.jobs, cluster, wanted.constants);
  std::vector<pack::WayToShare> ways;
  if (may_be_together(jobs.jobs, cluster)) ways = pack::ways_to_share(jobs.jobs, cluster.types.front(), wanted.constants);
  if (std::ranges::none_of(ways, [](const pack::WayToShare& way) { return way.problem.empty(); })) ways.clear();
  const PackReport report = {.jobs = jobs.jobs,
                             .cluster = cluster,
                             .plan = plan,
                             .constants = wanted.constants,
                             .together = together ? &*together : nullptr,
                             .best = best ? &*best : nullptr,
                             .ways = std::move(ways),
                             .notes = jobs.notes};
  if (manifest)
    std::fputs(manifest->write(report, options.manifest).c_str(), out.get());
  else if (options.format == "json")
    write_pack_json(report, out.get());
  else
    std::fputs((options.format == "html" ? pack_html(report) : pack_text(report, options.output.empty() && colour_wanted())).c_str(),
               out.get());
  if (std::fflush(out.get()) != 0) throw Error("cannot write the plan", options.output, "is the disk full?");
  if (!options.output.empty()) say("gpucast: the plan is in {}\n", options.output);
  const bool all = plan.never_fits == 0 && plan.out_of_memory_runs == 0 && (!together || together->fits);
  return all ? kExitYes : kExitNo;
}

}  // namespace

void declare_pack(Arguments& arguments) {
  auto options = std::make_shared<PackCommand>();
  arguments.option("JOBS", &options->files, "tables of jobs (CSV, JSON lines), results of `gpucast batch`, captures; - is standard input")
      .required();
  arguments.option("--gpus", &options->gpus, "the cards: 4xp40,2xa100-80").required();
  arguments.option("--policy", &options->policy, "slot, nvml, occupancy, memory or gpucast (default)");
  arguments
      .option("--best", &options->best,
              "the best plan of all policies: by makespan, mean time from arrival to end, or cost in hours of cards")
      .one_of({"makespan", "mean", "cost"});
  arguments.option("--mode", &options->mode, "how a card is shared: mps, mps-limits, timeslice or mig").shows_default();
  arguments.flag("--fair", &options->fair, "no job waits for ever: the oldest is overtaken 64 times at most");
  arguments.option("--seed", &options->seed, "where a search among many cards that could be shared begins").not_negative().shows_default();
  arguments.option("--steps", &options->steps, "of each capture's job").positive().shows_default();
  arguments.option("--constants", &options->constants, "a file of constants of packing and time, over the built-in ones");
  arguments.option("--format", &options->format, "text, json or html").one_of({"text", "json", "html"}).shows_default();
  arguments.option("--to", &options->to, "requests for a scheduler instead: kubernetes, hami, kai, volcano, slurm or ray");
  arguments.option("--image", &options->manifest.image, "with --to: the image of the jobs' containers");
  arguments.option("--queue", &options->manifest.queue, "with --to: the scheduler's queue or partition");
  arguments.option("-o,--output", &options->output, "write the plan there, not to standard output");
  arguments.action([options] { return run_pack(*options); });
}

}  // namespace gpucast::cli

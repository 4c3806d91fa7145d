#include "src/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/trace.h"
#include "src/base/say.h"
#include "src/check/baseline.h"
#include "src/check/judge_card.h"
#include "src/predict/facts.h"
#include "src/run/capture_file.h"
#include "src/search/runs.h"
#include "version.h"

namespace gpucast::check {
namespace {

namespace fs = std::filesystem;

using Ranks = std::vector<std::shared_ptr<const Facts>>;

// The jobs to run, in the order of the file.
std::vector<Job> chosen(const Config& config, const std::vector<std::string>& only) {
  if (only.empty()) return config.jobs;
  std::vector<std::string> names;
  names.reserve(config.jobs.size());
  for (const Job& job : config.jobs) names.push_back(job.name);
  for (const std::string& name : only) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto near = did_you_mean(name, names);
    throw Error(fmt::format("no job has the name '{}'", name), config.path,
                near ? fmt::format("did you mean '{}'?", *near) : fmt::format("its jobs are {}", fmt::join(names, ", ")));
  }
  std::vector<Job> out;
  for (const Job& job : config.jobs)
    if (std::find(only.begin(), only.end(), job.name) != only.end()) out.push_back(job);
  return out;
}

void check_folders(const Config& config, const std::vector<Job>& jobs) {
  for (const Job& job : jobs) {
    std::error_code error;
    if (job.capture.empty() && !fs::is_directory(fs::path(config.folder) / job.folder, error))
      throw Error(fmt::format("the folder of job '{}' does not exist: {}", job.name, job.folder), file_place(config.path, job.place),
                  "name one relative to the file");
  }
}

search::RunSpec spec_of(const Config& config, const Job& job, const std::string& gpu) {
  search::RunSpec spec;
  spec.command = job.command;
  spec.environment = job.environment;
  spec.folder = (fs::path(config.folder) / job.folder).lexically_normal().string();
  spec.gpu = gpu;
  spec.steps = job.steps;
  spec.gpus = job.node_gpus;
  spec.world_size = job.world_size;
  spec.ranks = job.ranks;
  spec.what_ifs = job.what_ifs;
  spec.timeout_s = job.timeout_s;
  return spec;
}

// One capture serves all cards of a compute capability: the first such card of the job.
std::string captured_as(const Job& job, const std::string& gpu) {
  const auto capability = compute_capability(find_gpu(gpu));
  return *std::ranges::find(job.gpus, capability, [](const std::string& other) { return compute_capability(find_gpu(other)); });
}

// The runs of all jobs, by job and card. They are made together, so that they share imports.
class JobRuns {
 public:
  JobRuns(const Config& config, const std::vector<Job>& jobs, const CheckOptions& options) {
    std::vector<search::RunSpec> specs;
    std::vector<std::pair<std::string, std::string>> keys;
    for (const Job& job : jobs) {
      if (!job.capture.empty()) continue;
      for (const std::string& gpu : job.gpus) {
        if (captured_as(job, gpu) != gpu) continue;
        specs.push_back(spec_of(config, job, gpu));
        keys.emplace_back(job.name, gpu);
      }
    }
    if (specs.empty()) return;
    search::RunsOptions runs_options;
    runs_options.fresh = options.fresh;
    runs_options.at_a_time = options.at_a_time;
    size_t done = 0;
    runs_options.on_end = [&](const search::Run& run) {
      say("gpucast check: run {} of {}, {:.1f} s{}\n", ++done, specs.size(), run.seconds, run.cached ? ", kept from before" : "");
    };
    std::vector<search::Run> ended = search::Runs(std::move(runs_options)).run(specs);
    for (size_t i = 0; i < ended.size(); ++i) runs_[keys[i]] = std::move(ended[i]);
  }

  const search::Run& run(const Job& job, const std::string& gpu) const { return runs_.at({job.name, captured_as(job, gpu)}); }

 private:
  std::map<std::pair<std::string, std::string>, search::Run> runs_;
};

run::JobProblem problem_of(const Error& error) { return {"not_judged", error.what(), error.where, error.hint}; }

// The captured ranks of a job for a card. Sets the job's problem if there are none.
std::optional<Ranks> capture_for(const Config& config, const JobRuns& runs, const std::string& gpu, JobResult* result) {
  if (!result->job.capture.empty()) return Ranks{follow(read_trace((fs::path(config.path).parent_path() / result->job.capture).string()))};
  const search::Run& run = runs.run(result->job, gpu);
  result->seconds += run.seconds;
  if (run.end == search::RunEnd::captured) return search::facts_of(run);
  result->problem = run.problem ? *run.problem : run::JobProblem{"failed", "the run failed", "", ""};
  result->printed = run.printed;
  if (result->problem->code == "timeout") result->problem->to_do = "give it more time: timeout_s";
  return std::nullopt;
}

JobResult judge_job(const Config& config, const Job& job, const JobRuns& runs, const Baseline& baseline) {
  JobResult out;
  out.job = job;
  std::map<std::string, Ranks> captures;
  try {
    for (const std::string& gpu : job.gpus) {
      const std::string key = job.capture.empty() ? captured_as(job, gpu) : "";
      if (!captures.contains(key)) {
        std::optional<Ranks> ranks = capture_for(config, runs, gpu, &out);
        if (!ranks) break;
        captures[key] = std::move(*ranks);
      }
      out.cards.push_back(judge_card(job, captures[key], gpu, baseline.find(job.name, gpu)));
      if (!job.capture.empty()) continue;
      const search::RunSpec spec = spec_of(config, job, gpu);
      out.cards.back().run_line = search::run_line(spec);
      out.cards.back().time_line = search::time_line(spec);
    }
  } catch (const Error& error) {
    out.problem = problem_of(error);
  }
  if (out.problem) out.cards.clear();
  return out;
}

void say_about_baseline(const Baseline& baseline, CheckResult* result) {
  if (!baseline.gpucast.empty() && baseline.gpucast != kGpucastVersion)
    result->notes.push_back(fmt::format("The baseline was written by gpucast {}, and this is {}.", baseline.gpucast, kGpucastVersion));
  if (result->limits(Outcome::unknown) > 0)
    result->notes.push_back(
        fmt::format("{} {}, so growth was not judged everywhere. Write it with `gpucast check --update-baseline` "
                    "on the main branch, and commit it.",
                    result->baseline, baseline.exists ? "lacks figures of some jobs" : "does not exist"));
}

void accept_growth(CheckResult* result) {
  for (JobResult& job : result->jobs)
    for (CardResult& card : job.cards)
      for (LimitResult& limit : card.limits)
        if (limit.limit.figure == Figure::growth) {
          limit.outcome = Outcome::passed;
          limit.most = "new baseline";
        }
}

// Jobs that were not chosen keep their figures; those that the configuration does not have any more go.
std::string renewed(const Config& config, Baseline baseline, const std::vector<JobResult>& jobs) {
  std::erase_if(baseline.jobs, [&](const auto& of_job) {
    return std::none_of(config.jobs.begin(), config.jobs.end(), [&](const Job& job) { return job.name == of_job.first; });
  });
  for (const JobResult& job : jobs) {
    CardBaselines& cards = baseline.jobs[job.job.name];
    cards.clear();
    for (const CardResult& card : job.cards) cards[card.gpu_id] = card.figures;
  }
  return baseline_text(baseline);
}

std::string repository_of(const std::string& folder) {
  for (fs::path above = folder;; above = above.parent_path()) {
    std::error_code error;
    if (fs::exists(above / ".git", error)) return above.string();
    if (above == above.parent_path()) return folder;
  }
}

}  // namespace

CheckResult check(const Config& config, const CheckOptions& options) {
  const std::vector<Job> jobs = chosen(config, options.only);
  check_folders(config, jobs);
  const Baseline baseline = read_baseline(config.baseline);
  std::optional<run::CaptureFile> target;  // before the long work, because it may fail
  if (options.update_baseline) target.emplace(config.baseline, true, kBaselineName);
  const JobRuns runs(config, jobs, options);
  CheckResult out;
  out.config = config.path;
  out.baseline = config.baseline;
  out.folder = config.folder;
  out.root = repository_of(config.folder);
  out.baseline_exists = baseline.exists;
  for (const Job& job : jobs) out.jobs.push_back(judge_job(config, job, runs, baseline));
  if (!target) {
    say_about_baseline(baseline, &out);
    return out;
  }
  accept_growth(&out);
  if (out.failed_jobs() > 0) {
    out.notes.emplace_back("The baseline was not written, because a job failed.");
    return out;
  }
  {
    std::ofstream file(target->path(), std::ios::binary);
    file << renewed(config, baseline, out.jobs);
    if (!file.flush()) throw Error("the baseline cannot be written", config.baseline, "is the disk full?");
  }
  target->keep();
  out.baseline_written = true;
  return out;
}

}  // namespace gpucast::check

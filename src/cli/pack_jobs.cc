#include "src/cli/pack_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/job_occupancy.h"
#include "gpucast/trace.h"
#include "src/job/packing_figures.h"
#include "src/occupancy/wheel.h"
#include "src/pack/job_table.h"
#include "src/predict/analysis.h"

namespace gpucast::cli {
namespace {

bool is_capture(const std::string& path) { return path.ends_with(".gpucast"); }

// Reads and follows the capture once, then judges it for each type of card.
pack::Job job_of_capture(const std::string& path, const pack::Cluster& cluster, int64_t steps, const std::string& constants_json,
                         std::vector<std::string>* notes) {
  const std::shared_ptr<const Facts> facts = follow(read_trace(path));
  JobOccupancyOptions wanted;
  wanted.gpus = cluster.types;
  wanted.cache = kernel_cache_folder();
  wanted.constants_json = constants_json;
  const JobOccupancy occupancy = job_occupancy(*facts, wanted);
  pack::Job out;
  out.name = std::filesystem::path(path).stem().string();
  out.steps = steps;
  out.command = facts->trace.header.command;
  out.only_listed = true;
  for (size_t t = 0; t < cluster.types.size(); ++t) {
    const Analysis analysis = judge(facts, cluster.types[t].id);
    out.by_card.emplace_back(analysis.gpu.id, packing_figures(analysis, occupancy.cards[t]));
    out.cards = static_cast<int>(std::max<int64_t>(1, analysis.prediction.world_size));
    for (const std::string& note : occupancy.cards[t].notes)
      if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(note);
  }
  out.figures = out.by_card.front().second;
  pack::check_job(out, path);
  return out;
}

}  // namespace

PackJobs read_pack_jobs(const std::vector<std::string>& files, const pack::Cluster& cluster, int64_t steps,
                        const std::string& constants_json) {
  PackJobs out;
  for (const std::string& path : files) {
    if (is_capture(path)) {
      out.jobs.push_back(job_of_capture(path, cluster, steps, constants_json, &out.notes));
      continue;
    }
    pack::JobTable table = pack::read_job_table(path);
    if (table.failed_runs > 0) out.notes.push_back(fmt::format("{}: {} runs failed and are left out", path, table.failed_runs));
    if (table.without_time > 0)
      out.notes.push_back(fmt::format("{}: {} runs have no time of a step, and count as a second", path, table.without_time));
    if (out.jobs.empty())
      out.jobs = std::move(table.jobs);
    else
      std::move(table.jobs.begin(), table.jobs.end(), std::back_inserter(out.jobs));
  }
  return out;
}

}  // namespace gpucast::cli

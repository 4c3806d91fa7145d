// A program that submits the jobs to Ray: docs.ray.io, "Accelerator Support" (fractional num_gpus) and "Resources" (custom ones). The
// fraction is the job's part of the card's memory, so jobs that share a card fit into it. The custom resource keeps a job on its type of
// card.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "src/report/pack/pack_manifest.h"

namespace gpucast {

std::string ray_manifest(const PackReport& report, const ManifestOptions&) {
  if (report.plan.mode == pack::SharingMode::mig)
    throw Error("Ray knows no MIG slices by their profile", "", "another --mode, or --to kubernetes");
  std::string start;
  for (size_t t = 0; t < report.cluster.types.size(); ++t) {
    const Gpu& gpu = report.cluster.types[t];
    const auto cards =
        std::count_if(report.cluster.cards.begin(), report.cluster.cards.end(), [&](const auto& card) { return card.type == t; });
    start += fmt::format("#   ray start --num-gpus={} --resources='{{\"{}-mib\": {}}}'\n", cards, gpu.id,
                         cards * static_cast<int64_t>(gpu.total_memory_bytes >> 20));
  }
  std::string jobs;
  for (const Request& request : requests_of(report)) {
    const bool shares = is_shared(report) && request.job->cards == 1;
    // Ray counts in steps of 1/10000.
    const double part = std::max(request.memory_share, report.plan.mode == pack::SharingMode::mps_limits ? request.percent / 100.0 : 0.0);
    const double gpus = shares ? std::min(1.0, std::ceil(part * 10000 - 1e-6) / 10000) : request.job->cards;
    const Json options = {{"name", request.job->name},
                          {"num_gpus", gpus < 1 ? Json(gpus) : Json(static_cast<int64_t>(gpus))},
                          {"resources", {{request.gpu->id + "-mib", request.memory_mib * request.job->cards}}}};
    // This JSON text is also Python, because it has no true, false or null.
    jobs += fmt::format("    ({}, {}),\n", options.dump(), Json(command_of(request, "Ray")).dump());
  }
  return "\"\"\"Submits the jobs of a plan to the Ray cluster at hand, and waits. Nodes with these cards, each type on nodes of its "
         "own:\n\n" +
         start + R"("""

import subprocess

import ray

JOBS = [
)" + jobs +
         R"(]


@ray.remote(max_retries=0)
def run(command):
    return subprocess.run(command).returncode


if __name__ == "__main__":
    ray.init(address="auto", ignore_reinit_error=True)
    codes = ray.get([run.options(**options).remote(command) for options, command in JOBS])
    for (options, _), code in zip(JOBS, codes):
        print(options["name"], code)
    raise SystemExit(max(codes))
)";
}

}  // namespace gpucast

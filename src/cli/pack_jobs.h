// Reads the jobs of `gpucast pack`: captures, results of a batch, tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/pack/cluster.h"
#include "src/pack/job.h"

namespace gpucast::cli {

struct PackJobs {
  std::vector<pack::Job> jobs;
  std::vector<std::string> notes;
};

// `steps`: the number of steps of a capture's job. `constants_json`: constants for the times of captures; "": the built-in ones. Throws
// Error.
PackJobs read_pack_jobs(const std::vector<std::string>& files, const pack::Cluster& cluster, int64_t steps,
                        const std::string& constants_json);

}  // namespace gpucast::cli

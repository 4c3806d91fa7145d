// A plan as manifests for schedulers: each job's requests on a card, at their upper bound. Each scheduler has a file, listed in
// pack_manifest.cc. Field names come from the documentation that the file names.
#pragma once

#include <string>
#include <vector>

#include "src/report/pack/pack_report.h"

namespace gpucast {

struct ManifestOptions {
  std::string image;  // of the jobs' containers
  std::string queue;  // for schedulers with queues
};

struct Manifest {
  const char* name;  // as in --to
  // Throws Error: a job has no command, there is no image, or the scheduler does not support the mode.
  std::string (*write)(const PackReport&, const ManifestOptions&);
};

const Manifest& manifest_of(const std::string& name);  // throws Error with all names

std::string kubernetes_manifest(const PackReport& report, const ManifestOptions& options);
std::string hami_manifest(const PackReport& report, const ManifestOptions& options);
std::string kai_manifest(const PackReport& report, const ManifestOptions& options);
std::string volcano_manifest(const PackReport& report, const ManifestOptions& options);
std::string slurm_manifest(const PackReport& report, const ManifestOptions& options);
std::string ray_manifest(const PackReport& report, const ManifestOptions& options);

// ---- shared by the schedulers
// ----------------------------------------------------------------------------------------------------------------

// A job that runs in the plan, and its requests on each of its cards.
struct Request {
  const pack::Job* job;
  const pack::Placement* placement;
  const Gpu* gpu;  // of the type that it was placed on
  std::string id;  // a unique Kubernetes name: letters, digits and '-', at most 63
  int64_t memory_mib = 0;
  double memory_share = 1;  // of the card
  int percent = 100;        // of the card's multiprocessors, if the mode limits them
};
std::vector<Request> requests_of(const PackReport& report);

bool is_shared(const PackReport& report);                        // jobs may share cards
std::string shell_words(const std::vector<std::string>& words);  // quoted for sh
// Throws Error if the job has no command.
const std::vector<std::string>& command_of(const Request& request, const char* scheduler);

}  // namespace gpucast

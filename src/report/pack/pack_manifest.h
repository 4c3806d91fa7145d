// A plan as requests that schedulers understand: what each job asks of a card, at its upper bound. One file for each scheduler, listed in
// pack_manifest.cc; field names are of the documentation that each file names.
#pragma once

#include <string>
#include <vector>

#include "src/report/pack/pack_report.h"

namespace gpucast {

struct ManifestOptions {
  std::string image;  // of the jobs' containers
  std::string queue;  // of schedulers that have queues
};

struct Manifest {
  const char* name;  // as --to takes it
  // Throws Error: a job has no command, there is no image, the scheduler cannot share cards so.
  std::string (*write)(const PackReport&, const ManifestOptions&);
};

const Manifest& manifest_of(const std::string& name);  // throws Error with all names

std::string kubernetes_manifest(const PackReport& report, const ManifestOptions& options);
std::string hami_manifest(const PackReport& report, const ManifestOptions& options);
std::string kai_manifest(const PackReport& report, const ManifestOptions& options);
std::string volcano_manifest(const PackReport& report, const ManifestOptions& options);
std::string slurm_manifest(const PackReport& report, const ManifestOptions& options);
std::string ray_manifest(const PackReport& report, const ManifestOptions& options);

// ---- what they share ----------------------------------------------------------------------------------------------------------------

// A job that has a place, and what it asks of each of its cards.
struct Request {
  const pack::Job* job;
  const pack::Placement* placement;
  const Gpu* gpu;  // of the type that it was placed on
  std::string id;  // of letters, digits and '-', each once, 63 at most: a Kubernetes name
  int64_t memory_mib = 0;
  double memory_share = 1;  // of the card
  int percent = 100;        // of the card's multiprocessors, where the mode limits them
};
std::vector<Request> requests_of(const PackReport& report);

bool is_shared(const PackReport& report);                        // jobs may sit with others
std::string shell_words(const std::vector<std::string>& words);  // quoted for sh
// Throws Error where the job has none.
const std::vector<std::string>& command_of(const Request& request, const char* scheduler);

}  // namespace gpucast

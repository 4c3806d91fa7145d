// Any bytes at all as a table of jobs: an error, or jobs that can be packed, never a crash.
// Built with clang and -DGPUCAST_FUZZ=ON:
//   build/fuzz/bin/jobs_fuzz -max_len=4096 -timeout=10 CORPUS tests/fuzz/corpus/jobs

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "gpucast/error.h"
#include "src/pack/job_table.h"
#include "src/pack/simulate.h"

using namespace gpucast;

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

template <class Run>
void error_or(Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    require(!std::string(error.what()).starts_with("internal error"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const pack::Cluster clusters[] = {
      pack::parse_cluster("2xp40,a100-80", pack::SharingMode::mps), pack::parse_cluster("2xp40,a100-80", pack::SharingMode::mps_limits),
      pack::parse_cluster("3xp40", pack::SharingMode::timeslice), pack::parse_cluster("2xa100-40,a100-80", pack::SharingMode::mig)};
  const int file = memfd_create("jobs", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return -1;
  error_or([&] {
    const pack::JobTable table = pack::read_job_table("/proc/self/fd/" + std::to_string(file));
    for (const pack::Cluster& cluster : clusters)
      for (const pack::Policy* policy : pack::policies()) {
        pack::PackOptions options;
        options.policy = policy;
        options.fair = size % 2 == 1;
        const pack::Plan plan = simulate(table.jobs, cluster, options);
        require(plan.finished + plan.never_fits + plan.out_of_memory_jobs == static_cast<int64_t>(table.jobs.size()));
        require(!policy->sees_memory || plan.out_of_memory_runs == 0);
      }
  });
  close(file);
  return 0;
}

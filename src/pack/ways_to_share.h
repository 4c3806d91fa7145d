// The same jobs on one card at once, in each mode of sharing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "src/pack/constants.h"
#include "src/pack/interference.h"
#include "src/pack/job.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {

struct WayToShare {
  SharingMode mode = SharingMode::mps;
  std::string problem;              // why the jobs cannot share the card like this; empty: they can
  std::vector<Slowdown> slowdowns;  // by job
  std::vector<std::string> limits;  // by job, what it may use: "40 %" of the multiprocessors, "3g.40gb"; empty: anything
  double progress = 0;              // of all jobs together; 1 is the progress of a job alone
};

// One for each mode that the card has. Limits of MPS: what each job uses alone, in whole percent, and less in proportion where they add up
// to more than 100. MIG: the slices with which the jobs' progress is largest. Each job must run on this card; there are at most 8.
std::vector<WayToShare> ways_to_share(std::span<const Job> jobs, const Gpu& gpu, const PackConstants& constants);

}  // namespace gpucast::pack

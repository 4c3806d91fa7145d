// A policy decides which jobs may share a card. It is a row of plain data in its own file, policy_NAME.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/pack/interference.h"
#include "src/pack/job.h"

namespace gpucast::pack {

struct Policy {
  const char* name;  // as on the command line
  const char* rule;  // one sentence
  // The job's share of a card; shares on a card add up to at most 1. 0: jobs are not counted.
  double (*share)(const Figures& figures);
  bool sees_memory;  // requests on a card add up to at most its memory. Without it, a job that starts too late runs out of memory
  // How much progress a resident loses by one more job; 1 is the progress of a job alone. A job shares a card only if its own progress
  // exceeds the losses of all residents by PackConstants::least_gain on each of its cards. It gets the cards where the difference is
  // largest. nullptr: the job gets any cards with enough room.
  double (*loss)(const Slowdown& before, const Slowdown& after);
};

extern const Policy kSlotPolicy, kNvmlPolicy, kOccupancyPolicy, kMemoryPolicy, kGpucastPolicy;
std::span<const Policy* const> policies();
const Policy& find_policy(std::string_view name);  // throws Error with a suggestion

}  // namespace gpucast::pack

// Who may share a card with whom. A policy is a row of plain data, one file each: policy_NAME.cc.
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
  // What a further job costs a resident of its progress, 1 being the progress of a job alone. A job shares a card only if its own progress
  // exceeds all residents' losses by PackConstants::least_gain on each of its cards, and it takes the cards where the difference is
  // largest. nullptr: the job takes any card with enough room.
  double (*loss)(const Slowdown& before, const Slowdown& after);
};

extern const Policy kSlotPolicy, kNvmlPolicy, kOccupancyPolicy, kMemoryPolicy, kGpucastPolicy;
std::span<const Policy* const> policies();
const Policy& find_policy(std::string_view name);  // throws Error, with what was probably meant

}  // namespace gpucast::pack

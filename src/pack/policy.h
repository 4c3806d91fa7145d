// Who may sit with whom. A policy is a row of plain data, one file each: policy_NAME.cc.
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
  // What a job counts as, of a card's 1; shares on a card add up to at most 1. 0: it is not counted.
  double (*share)(const Figures& figures);
  bool sees_memory;  // requests on a card add up to at most its memory. Without it, what comes too late runs out of memory
  // What a further job costs one that is there, of its progress, 1 being that of a job alone. A job sits down beside others only where it
  // comes forward more than that costs them all, by kLeastGain on each of its cards, and where the difference is largest. nullptr: any
  // place with enough left will do.
  double (*loss)(const Slowdown& before, const Slowdown& after);
};

inline constexpr double kLeastGain = 0.05;

extern const Policy kSlotPolicy, kNvmlPolicy, kOccupancyPolicy, kMemoryPolicy, kGpucastPolicy;
std::span<const Policy* const> policies();
const Policy& policy_of(std::string_view name);  // throws Error, with what was probably meant

}  // namespace gpucast::pack

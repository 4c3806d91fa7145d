// A plan as text, JSON and HTML. docs/reference/pack.md is the contract.
#pragma once

#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "src/pack/best_plan.h"
#include "src/pack/cluster.h"
#include "src/pack/contention.h"
#include "src/pack/interference.h"
#include "src/pack/job.h"
#include "src/pack/plan.h"
#include "src/pack/ways_to_share.h"

namespace gpucast {

// What two of the jobs compete for, if they share a card.
struct ContendingPair {
  size_t one = 0, other = 0;  // indices of jobs
  pack::Contention contention;
};

// All jobs on one card at once: whether they fit, and their slowdowns.
struct Together {
  bool fits = false;
  int64_t request_bytes = 0, capacity_bytes = 0;
  std::vector<pack::Slowdown> slowdowns;  // by job; empty: they do not fit
  std::vector<ContendingPair> pairs;      // each two of the jobs
};

struct PackReport {
  const std::vector<pack::Job>& jobs;
  const pack::Cluster& cluster;
  const pack::Plan& plan;
  const pack::PackConstants& constants;
  const Together* together = nullptr;
  const pack::BestPlan* best = nullptr;  // of --best: the other plans that were tried
  std::vector<pack::WayToShare> ways;    // two to eight jobs on one card that some way can hold; else empty
  std::vector<std::string> notes;
};

std::string pack_text(const PackReport& report, bool colour);
// Written job by job, because there may be a million jobs.
void write_pack_json(const PackReport& report, std::FILE* out);
std::string pack_html(const PackReport& report);

}  // namespace gpucast

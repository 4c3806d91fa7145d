// What comes out of packing: where and when each job runs, and what that does to the cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/pack/cluster.h"

namespace gpucast::pack {

enum class Outcome : uint8_t { finished, out_of_memory, never_fits, count_ };
const char* outcome_name(Outcome outcome);  // as in JSON

// Why a job went where it went.
enum class Reason : uint8_t {
  idle_card,       // nothing ran there
  share_fits,      // the sum of shares stays within the card: the policy asks for no more
  memory_fits,     // the sum of memory stays within the card
  best_neighbour,  // of those it could sit with, the card's progress grows most
  slice_fits,      // a MIG slice was free
  alone_after_out_of_memory,
  none,  // it never ran
  count_
};
const char* reason_name(Reason reason);  // as in JSON

// Placements of the i-th job are `jobs[i]`.
struct Placement {
  Outcome outcome = Outcome::never_fits;
  Reason reason = Reason::none;
  int64_t start_ns = 0, end_ns = 0;  // of its last run
  std::vector<uint32_t> cards;       // indices into Cluster::cards; empty: it never ran
  std::vector<uint32_t> neighbours;  // jobs on its cards when it started, by index, each once
  // Of a card, as the policy counts it; MPS limits: what it is limited to; MIG: of the multiprocessors. Of a policy that weighs, the
  // largest share of any part of the card: such sums may go beyond 1.
  double share = 1;
  int64_t request_bytes = 0;   // of each card (MIG: what it needs, not its slice)
  int mig_profile = -1;        // of mig_profiles(), or none
  double slowdown = 1;         // time it ran over what it takes alone on such a card
  double gain = 0;             // best_neighbour: by how much the card's progress grew, 1 being that of a job alone
  int out_of_memory_runs = 0;  // that died
};

struct CardUse {
  double busy = 0;         // share of the makespan with a job on it
  double nvml = 0;         // nvidia-smi's utilisation, over the makespan
  double occupancy = 0;    // over the makespan
  int64_t most_bytes = 0;  // requested at once
  int most_jobs = 0;       // at once
  int64_t jobs = 0;        // that ran there
};

struct Plan {
  std::string policy;
  SharingMode mode = SharingMode::mps;
  bool fair = false;
  uint64_t seed = 0;
  std::vector<Placement> jobs;
  std::vector<CardUse> cards;
  int64_t makespan_ns = 0;  // from the first arrival to the last end
  int64_t first_arrival_ns = 0;
  // Of finished jobs: from arrival to end, and from arrival to start.
  double mean_jct_ns = 0, p50_jct_ns = 0, p99_jct_ns = 0, mean_queue_ns = 0, p99_queue_ns = 0, mean_slowdown = 1;
  double utilization = 0, nvml = 0, occupancy = 0;  // means over the cards
  double gpu_hours = 0;                             // cards times the time that they had a job
  double job_gpu_hours = 0;                         // of jobs, each card counted once for each: above gpu_hours by what is shared
  int64_t finished = 0, never_fits = 0;
  int64_t out_of_memory_runs = 0;  // that died; such a job runs again, alone
  int64_t out_of_memory_jobs = 0;  // that do not fit an empty card either, and were started all the same
  int64_t events = 0;              // arrivals, ends and losses
};

}  // namespace gpucast::pack

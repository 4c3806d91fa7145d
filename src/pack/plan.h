// The result of packing: where and when each job runs, and how that uses the cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/pack/cluster.h"

namespace gpucast::pack {

inline constexpr double kHourNs = 3.6e12;  // a plan counts hours of cards

enum class Outcome : uint8_t { finished, out_of_memory, never_fits, count_ };
const char* outcome_name(Outcome outcome);  // as in JSON

// Why a job runs on its cards.
enum class Reason : uint8_t {
  idle_card,       // nothing ran there
  share_fits,      // shares add up to at most the card
  memory_fits,     // memory requests add up to at most the card's memory
  best_neighbour,  // the cards' progress grows most on these cards
  slice_fits,      // a MIG slice was free
  alone_after_out_of_memory,
  none,  // it never ran
  count_
};
const char* reason_name(Reason reason);  // as in JSON

struct Placement {
  Outcome outcome = Outcome::never_fits;
  Reason reason = Reason::none;
  int64_t start_ns = 0, end_ns = 0;  // of its last run
  std::vector<uint32_t> cards;       // indices into Cluster::cards; empty: it never ran
  std::vector<uint32_t> neighbours;  // jobs on its cards when it started, as indices into Plan::jobs, each once
  // Of a card, as the policy counts it. MPS limits: the job's limit; MIG: its share of the multiprocessors. If the policy weighs
  // neighbours: its share of the card's time, and shares on a card may add up to more than 1.
  double share = 1;
  int64_t request_bytes = 0;  // of each card (MIG: the job's request, not its slice's memory)
  int mig_profile = -1;       // index into mig_profiles(); -1: no slice
  double slowdown = 1;        // its run time over its time alone on such a card
  double gain = 0;            // how much its cards' progress grew; 1 is the progress of a job alone
  int out_of_memory_runs = 0;
};

struct CardUse {
  double busy = 0;         // share of the makespan with a job on it
  double nvml = 0;         // nvidia-smi's utilisation, over the makespan
  double occupancy = 0;    // over the makespan
  int64_t most_bytes = 0;  // the most requested at once
  int most_jobs = 0;       // at once
  int64_t jobs = 0;        // number of jobs that ran there
};

// Jobs that arrive at the same time start in this order, if no other rule decides.
enum class JobOrder : uint8_t { arrival, longest_first, shortest_first, searched, count_ };  // arrival: as in the input
const char* job_order_name(JobOrder order);                                                  // as in JSON

struct Plan {
  std::string policy;
  JobOrder order = JobOrder::arrival;
  SharingMode mode = SharingMode::mps;
  bool fair = false;
  uint64_t seed = 0;
  std::vector<Placement> jobs;  // in the order of the input
  std::vector<CardUse> cards;
  int64_t makespan_ns = 0;  // from the first arrival to the last end
  int64_t first_arrival_ns = 0;
  // Of finished jobs: from arrival to end, and from arrival to start.
  double mean_jct_ns = 0, p50_jct_ns = 0, p99_jct_ns = 0, mean_queue_ns = 0, p99_queue_ns = 0, mean_slowdown = 1;
  double utilization = 0, nvml = 0, occupancy = 0;  // means over the cards
  double gpu_hours = 0;                             // of cards with a job
  double job_gpu_hours = 0;                         // of jobs: a shared card counts for each of its jobs
  int64_t finished = 0, never_fits = 0;
  int64_t out_of_memory_runs = 0;  // the job of such a run is repeated on a whole card
  int64_t out_of_memory_jobs = 0;  // jobs that do not fit an empty card either
  int64_t events = 0;              // arrivals, ends, and runs out of memory
};

}  // namespace gpucast::pack

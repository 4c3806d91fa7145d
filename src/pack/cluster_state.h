// The cards of a cluster while jobs run on them: the jobs on each card, its free capacity, and its use so far. Jobs are numbered by
// arrival.
#pragma once

#include <cstdint>
#include <vector>

#include "src/pack/cluster.h"
#include "src/pack/demand.h"
#include "src/pack/fit_tree.h"
#include "src/pack/interference.h"
#include "src/pack/job.h"
#include "src/pack/kernel_mix.h"
#include "src/pack/mig_slices.h"

namespace gpucast::pack {

struct Resident {
  uint32_t job = 0;
  double slowdown = 1;
};

struct CardState {
  std::vector<Resident> residents;
  std::vector<KernelMix> mixes;     // of the residents
  std::vector<Slowdown> slowdowns;  // of the residents; empty: not computed since they changed
  Capacity free;                    // in the same units as demands
  int64_t used_bytes = 0;
  MigSlices slices;
  bool changed = false;                               // its residents changed at this moment; their slowdowns are not updated yet
  int64_t since_ns = 0;                               // the sums below end here
  double nvml = 0, occupancy = 0;                     // now
  double busy_ns = 0, nvml_ns = 0, occupancy_ns = 0;  // sums over time
};

struct CardType {
  CardSize size;
  uint32_t first_card = 0, card_count = 0;
  FitTree free_cards;                   // the CardState::free of its cards
  std::vector<const Figures*> figures;  // by job; nullptr: the job never runs on this type
  std::vector<Capacity> demands;        // by job
};

struct ClusterState {
  const Cluster* cluster = nullptr;
  SharingRules rules;
  std::vector<CardType> types;
  std::vector<CardState> cards;

  CardType& type_of(uint32_t card) { return types[cluster->cards[card].type]; }
};

// All cards are idle. `by_arrival`: all jobs of the simulation. The cluster must outlive the state.
ClusterState idle_cluster(const Cluster& cluster, const SharingRules& rules, const std::vector<const Job*>& by_arrival);

// For any policy: the job will run alone on a card, because it ran out of memory on a shared one.
void demand_whole_card(uint32_t job, ClusterState* state);

// -1 without MIG.
int mig_profile_of(const Capacity& demand, SharingMode mode);

// True: the job's memory and its neighbours' memory exceed the card (MIG: the job's memory exceeds its slice).
bool lacks_memory(const ClusterState& state, const CardType& type, uint32_t job, uint32_t card);

// A job starts or ends on a card. Slowdowns stay unchanged until refresh_slowdowns().
void add_resident(uint32_t job, uint32_t card, int64_t now_ns, ClusterState* state);
void remove_resident(uint32_t job, uint32_t card, int64_t now_ns, ClusterState* state);

// Updates the residents' slowdowns and the card's load after its residents changed.
void refresh_slowdowns(uint32_t card, ClusterState* state);

}  // namespace gpucast::pack

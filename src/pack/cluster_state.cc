#include "src/pack/cluster_state.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace gpucast::pack {
namespace {

// Adds the card's use since its residents last changed to the sums.
void add_load(int64_t now_ns, CardState* card) {
  const auto ns = static_cast<double>(now_ns - card->since_ns);
  card->since_ns = now_ns;
  if (card->residents.empty()) return;
  card->busy_ns += ns;
  card->nvml_ns += ns * card->nvml;
  card->occupancy_ns += ns * card->occupancy;
}

void set_free(uint32_t card, const Capacity& free, CardType* type, ClusterState* state) {
  state->cards[card].free = free;
  type->free_cards.set(card - type->first_card, free);
}

}  // namespace

ClusterState idle_cluster(const Cluster& cluster, const SharingRules& rules, const std::vector<const Job*>& by_arrival) {
  ClusterState out = {&cluster, rules, {}, std::vector<CardState>(cluster.cards.size())};
  for (const Gpu& gpu : cluster.types) out.types.emplace_back().size = card_size(gpu, rules);
  for (uint32_t c = 0; c < out.cards.size(); ++c) {
    CardType& type = out.type_of(c);
    if (type.card_count++ == 0) type.first_card = c;
    CardState& card = out.cards[c];
    card.since_ns = by_arrival.empty() ? 0 : by_arrival.front()->arrival_ns;
    card.free = cluster.mode == SharingMode::mig ? Capacity{static_cast<int64_t>(type.size.profiles.size()), 0}
                                                 : Capacity{type.size.capacity_bytes, kWholeCard};
  }
  for (CardType& type : out.types) {
    type.free_cards.reset(type.card_count);
    for (uint32_t c = 0; c < type.card_count; ++c) type.free_cards.set(c, out.cards[type.first_card + c].free);
    type.figures.resize(by_arrival.size());
    type.demands.resize(by_arrival.size());
    for (size_t job = 0; job < by_arrival.size(); ++job) {
      const Figures* figures = by_arrival[job]->figures_on(type.size.gpu->id);
      if (!figures || by_arrival[job]->cards > static_cast<int64_t>(type.card_count)) continue;
      const std::optional<Capacity> demand = card_demand(type.size, *figures, rules);
      if (!demand) continue;
      type.figures[job] = figures;
      type.demands[job] = *demand;
    }
  }
  return out;
}

void demand_whole_card(uint32_t job, ClusterState* state) {
  for (CardType& type : state->types) {
    if (state->rules.mode == SharingMode::mig)
      type.demands[job].bytes = static_cast<int64_t>(type.size.profiles.size());
    else
      type.demands[job].share = kWholeCard;
  }
}

int mig_profile_of(const Capacity& demand, SharingMode mode) { return mode == SharingMode::mig ? static_cast<int>(demand.bytes) - 1 : -1; }

bool lacks_memory(const ClusterState& state, const CardType& type, uint32_t job, uint32_t card) {
  const int64_t request_bytes = type.figures[job]->request_bytes;
  const int profile = mig_profile_of(type.demands[job], state.rules.mode);
  if (profile >= 0) return request_bytes > type.size.profiles[static_cast<size_t>(profile)].bytes;
  return request_bytes + state.cards[card].used_bytes > type.size.capacity_bytes;
}

void add_resident(uint32_t job, uint32_t card, int64_t now_ns, ClusterState* state) {
  CardType& type = state->type_of(card);
  CardState& there = state->cards[card];
  const Capacity& demand = type.demands[job];
  const int profile = mig_profile_of(demand, state->rules.mode);
  add_load(now_ns, &there);
  there.residents.push_back({job, 1});
  there.mixes.push_back(limited_mix(type.size, *type.figures[job], demand, profile, state->rules));
  there.slowdowns.clear();
  there.used_bytes += type.figures[job]->request_bytes;
  Capacity free = {there.free.bytes - demand.bytes, there.free.share - demand.share};
  if (profile >= 0) {
    take_slice(type.size.profiles, profile, job, &there.slices);
    free = {largest_free_profile(type.size.profiles, there.slices.taken_units), 0};
  }
  set_free(card, free, &type, state);
}

void remove_resident(uint32_t job, uint32_t card, int64_t now_ns, ClusterState* state) {
  CardType& type = state->type_of(card);
  CardState& there = state->cards[card];
  const Capacity& demand = type.demands[job];
  add_load(now_ns, &there);
  const auto resident =
      std::find_if(there.residents.begin(), there.residents.end(), [&](const Resident& other) { return other.job == job; });
  there.mixes.erase(there.mixes.begin() + (resident - there.residents.begin()));
  there.residents.erase(resident);
  there.slowdowns.clear();
  there.used_bytes -= type.figures[job]->request_bytes;
  Capacity free = {there.free.bytes + demand.bytes, there.free.share + demand.share};
  if (state->rules.mode == SharingMode::mig) {
    release_slice(job, &there.slices);
    free = {largest_free_profile(type.size.profiles, there.slices.taken_units), 0};
  }
  set_free(card, free, &type, state);
}

void refresh_slowdowns(uint32_t card, ClusterState* state) {
  CardState& there = state->cards[card];
  there.changed = false;
  there.nvml = there.occupancy = 0;
  if (there.residents.empty()) return;
  const CardType& type = state->type_of(card);
  const bool takes_turns = state->rules.mode == SharingMode::timeslice;
  there.slowdowns = slowdowns(there.mixes, *type.size.gpu, state->rules.mode, *state->rules.constants);
  double idle = 1;
  for (size_t i = 0; i < there.residents.size(); ++i) {
    Resident& resident = there.residents[i];
    resident.slowdown = there.slowdowns[i].expected;
    const Figures& figures = *type.figures[resident.job];
    // The times of turns add up. Without turns, kernels of several processes may run at the same time.
    if (takes_turns) there.nvml += figures.nvml_utilization / resident.slowdown;
    idle *= 1 - std::min(1.0, figures.nvml_utilization);
    there.occupancy += figures.occupancy * figures.nvml_utilization / resident.slowdown;
  }
  if (!takes_turns) there.nvml = 1 - idle;
  there.nvml = std::min(1.0, there.nvml);
  there.occupancy = std::min(1.0, there.occupancy);
}

}  // namespace gpucast::pack

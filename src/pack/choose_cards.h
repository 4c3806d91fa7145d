// Chooses the cards that a job starts on: the first cards with room or, if the policy weighs neighbours, those where sharing gains most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/pack/cluster_state.h"
#include "src/pack/fit_tree.h"
#include "src/pack/job.h"

namespace gpucast::pack {

inline constexpr uint32_t kAnyCard = UINT32_MAX;
inline constexpr int32_t kAnyShare = INT32_MIN + 1;  // Capacity::share: the card's share does not matter

struct CardChoice {
  CardType* type = nullptr;
  std::vector<uint32_t> cards;  // in the order in which they were found
  double gain = 0;              // if neighbours are weighed: how much the progress of each card grows; 1 is the progress of a job alone
};

// Every function returns whether the job can start now. If so, `choice` has its cards; if not, `choice` is undefined.
class CardChooser {
 public:
  // The arguments must outlive the chooser. `seed`: where its search among shared cards begins.
  CardChooser(const std::vector<const Job*>* by_arrival, ClusterState* state, uint64_t seed)
      : by_arrival_(*by_arrival), state_(*state), seed_(seed) {}

  // Cards of one type. `required_card`: a card that must be among them, or kAnyCard.
  bool choose_on_type(CardType* type, uint32_t job, uint32_t required_card, CardChoice* choice);
  // Cards of the type on which the job is fastest.
  bool choose_on_any_type(uint32_t job, CardChoice* choice);
  // Same, but only idle cards.
  bool choose_idle(uint32_t job, CardChoice* choice);

 private:
  // The effect of one more job on a card.
  struct Joining {
    double slowdown = 1;  // of the job
    double loss = 0;      // of the residents' progress
    double gain() const { return 1 / slowdown - loss; }
  };
  struct Candidate {
    Joining joining;
    uint32_t card = 0;
  };

  size_t cards_needed(uint32_t job) const { return static_cast<size_t>(by_arrival_[job]->cards); }
  Capacity least_room(const CardType& type, uint32_t job) const;
  Joining weigh_joining(const CardType& type, uint32_t job, uint32_t card);
  void weigh_candidates(const CardType& type, uint32_t job, size_t most_candidates, const std::vector<uint32_t>& chosen);
  bool choose_weighing(const CardType& type, uint32_t job, uint32_t required_card, CardChoice* choice);
  void sort_types_by_speed(uint32_t job);

  const std::vector<const Job*>& by_arrival_;
  ClusterState& state_;
  uint64_t seed_;
  // Members only to reuse their memory.
  std::vector<CardType*> types_by_speed_;
  std::vector<Candidate> candidates_;
};

}  // namespace gpucast::pack

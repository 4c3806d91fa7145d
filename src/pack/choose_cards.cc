#include "src/pack/choose_cards.h"

#include <algorithm>

#include "src/pack/interference.h"
#include "src/pack/policy.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {
namespace {

constexpr size_t kMostCandidates = 64;  // shared cards that are weighed for a job

uint64_t mixed_bits(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

// The least free capacity of a card on which the job is weighed.
Capacity CardChooser::least_room(const CardType& type, uint32_t job) const {
  Capacity out = type.demands[job];
  if (state_.rules.soft_shares) out.share = kAnyShare;
  return out;
}

void CardChooser::sort_types_by_speed(uint32_t job) {
  types_by_speed_.clear();
  for (CardType& type : state_.types)
    if (type.figures[job]) types_by_speed_.push_back(&type);
  std::stable_sort(types_by_speed_.begin(), types_by_speed_.end(),
                   [&](const CardType* a, const CardType* b) { return a->figures[job]->step_ns < b->figures[job]->step_ns; });
}

bool CardChooser::choose_on_type(CardType* type, uint32_t job, uint32_t required_card, CardChoice* choice) {
  choice->type = type;
  choice->cards.clear();
  choice->gain = 0;
  if (required_card != kAnyCard && !state_.cards[required_card].free.covers(least_room(*type, job))) return false;
  if (state_.rules.weighs_neighbours) return choose_weighing(*type, job, required_card, choice);
  if (required_card != kAnyCard) choice->cards.push_back(required_card);
  for (size_t i = 0; choice->cards.size() < cards_needed(job); ++i) {
    i = type->free_cards.find_first(type->demands[job], i);
    if (i == FitTree::kNone) return false;
    const auto card = static_cast<uint32_t>(type->first_card + i);
    if (card != required_card) choice->cards.push_back(card);
  }
  return true;
}

CardChooser::Joining CardChooser::weigh_joining(const CardType& type, uint32_t job, uint32_t card) {
  const SharingRules& rules = state_.rules;
  CardState& there = state_.cards[card];
  if (there.residents.empty()) return {slowdown_alone(type.size, *type.figures[job], -1, rules), 0};
  if (there.slowdowns.empty()) there.slowdowns = slowdowns(there.mixes, *type.size.gpu, rules.mode, *rules.constants);
  there.mixes.push_back(limited_mix(type.size, *type.figures[job], type.demands[job], -1, rules));
  const std::vector<Slowdown> after = slowdowns(there.mixes, *type.size.gpu, rules.mode, *rules.constants);
  there.mixes.pop_back();
  Joining out = {after.back().expected, 0};
  for (size_t i = 0; i < there.residents.size(); ++i) out.loss += rules.policy->loss(there.slowdowns[i], after[i]);
  return out;
}

bool CardChooser::choose_weighing(const CardType& type, uint32_t job, uint32_t required_card, CardChoice* choice) {
  const size_t needed = cards_needed(job);
  std::vector<uint32_t>& chosen = choice->cards;
  Joining all;  // over all chosen cards; the slowest card determines the slowdown
  const auto take = [&](const Joining& joining, uint32_t card) {
    all.slowdown = std::max(all.slowdown, joining.slowdown);
    all.loss += joining.loss;
    chosen.push_back(card);
  };
  if (required_card != kAnyCard) take(weigh_joining(type, job, required_card), required_card);
  // First idle cards, then cards on which the job hardly slows any neighbour, then any card.
  const Capacity harmless = type.demands[job];
  for (const Capacity& room : {Capacity{harmless.bytes, kWholeCard}, harmless}) {
    const auto before = static_cast<std::ptrdiff_t>(chosen.size());
    for (size_t i = 0; chosen.size() < needed; ++i) {
      i = type.free_cards.find_first(room, i);
      if (i == FitTree::kNone) break;
      const auto card = static_cast<uint32_t>(type.first_card + i);
      if (std::find(chosen.begin(), chosen.begin() + before, card) != chosen.begin() + before) continue;
      if (state_.cards[card].residents.size() < kMostSharers) take(weigh_joining(type, job, card), card);
    }
  }
  if (chosen.size() < needed) {
    weigh_candidates(type, job, std::max(kMostCandidates, needed), chosen);
    if (chosen.size() + candidates_.size() < needed) return false;
    for (size_t i = 0; chosen.size() < needed; ++i) take(candidates_[i].joining, candidates_[i].card);
  }
  const auto cards = static_cast<double>(needed);
  choice->gain = (cards / all.slowdown - all.loss) / cards;
  return choice->gain > state_.rules.constants->least_gain;
}

// Fills candidates_ with some of the cards that have jobs and room, the best first. The search begins at a different card for each job, and
// ends early if it finds good cards.
void CardChooser::weigh_candidates(const CardType& type, uint32_t job, size_t most_candidates, const std::vector<uint32_t>& chosen) {
  candidates_.clear();
  size_t missing = cards_needed(job) - chosen.size();
  const Capacity room = least_room(type, job);
  const size_t begin = mixed_bits(seed_ + job) % type.card_count;
  for (const auto& [from, to] : {std::pair<size_t, size_t>(begin, type.card_count), std::pair<size_t, size_t>(0, begin)})
    for (size_t i = from; candidates_.size() < most_candidates && missing > 0; ++i) {
      i = type.free_cards.find_first(room, i);
      if (i == FitTree::kNone || i >= to) break;
      const auto card = static_cast<uint32_t>(type.first_card + i);
      if (state_.cards[card].residents.size() >= kMostSharers || std::find(chosen.begin(), chosen.end(), card) != chosen.end()) continue;
      candidates_.push_back({weigh_joining(type, job, card), card});
      if (candidates_.back().joining.gain() >= state_.rules.constants->good_gain) --missing;
    }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.joining.gain() != b.joining.gain() ? a.joining.gain() > b.joining.gain() : a.card < b.card;
  });
}

bool CardChooser::choose_on_any_type(uint32_t job, CardChoice* choice) {
  sort_types_by_speed(job);
  if (!state_.rules.weighs_neighbours || types_by_speed_.size() < 2) {
    for (CardType* type : types_by_speed_)
      if (choose_on_type(type, job, kAnyCard, choice)) return true;
    return false;
  }
  CardType* best = nullptr;
  double best_speed = 0;
  for (CardType* type : types_by_speed_) {
    if (!choose_on_type(type, job, kAnyCard, choice)) continue;
    const double speed = choice->gain / type->figures[job]->step_ns;
    if (speed <= best_speed) continue;
    best_speed = speed;
    best = type;
  }
  return best && choose_on_type(best, job, kAnyCard, choice);
}

bool CardChooser::choose_idle(uint32_t job, CardChoice* choice) {
  sort_types_by_speed(job);
  for (CardType* type : types_by_speed_) {
    Capacity idle = type->demands[job];
    idle.share = kWholeCard;
    choice->type = type;
    choice->cards.clear();
    choice->gain = 1;
    for (size_t i = 0; choice->cards.size() < cards_needed(job); ++i) {
      i = type->free_cards.find_first(idle, i);
      if (i == FitTree::kNone) break;
      choice->cards.push_back(static_cast<uint32_t>(type->first_card + i));
    }
    if (choice->cards.size() == cards_needed(job)) return true;
  }
  return false;
}

}  // namespace gpucast::pack

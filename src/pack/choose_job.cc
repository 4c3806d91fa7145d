#include "src/pack/choose_job.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "src/pack/fit_tree.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {
namespace {

constexpr size_t kMostJobsWeighed = 64, kMostGangsWeighed = 4;  // from each line, for one card

}  // namespace

uint32_t first_job_that_fits(uint32_t card, ClusterState* state, WaitingQueue* queue, CardChooser* chooser, CardChoice* choice) {
  CardType& type = state->type_of(card);
  const Capacity free = negated(state->cards[card].free);
  uint32_t first = kNoJob;
  std::vector<Capacity> failed;  // demands of gangs that found no cards: a gang that needs at least as much will find none either
  const auto may_fit = [&](const Capacity& least) {
    return std::none_of(failed.begin(), failed.end(), [&](const Capacity& demand) { return negated(least).covers(demand); });
  };
  for (const WaitingQueue::Line& line : queue->lines_for(type)) {
    if (line.waiting == 0) continue;
    failed.clear();
    for (size_t i = 0;; ++i) {
      i = line.demands.find_first(free, i, may_fit);
      if (i == FitTree::kNone || line.jobs[i] >= first) break;
      if (line.cards == 1 || chooser->choose_on_type(&type, line.jobs[i], card, choice)) {
        first = line.jobs[i];
        break;
      }
      failed.push_back(type.demands[line.jobs[i]]);
    }
  }
  if (first == kNoJob || !chooser->choose_on_type(&type, first, card, choice)) return kNoJob;
  return first;
}

uint32_t best_job_for_card(uint32_t card, int64_t now_ns, ClusterState* state, WaitingQueue* queue, CardChooser* chooser,
                           CardChoice* choice) {
  if (state->cards[card].residents.size() >= kMostSharers) return kNoJob;
  CardType& type = state->type_of(card);
  std::vector<WaitingQueue::Line>& lines = queue->lines_for(type);
  Capacity free = negated(state->cards[card].free);
  // A job that hardly slows its neighbours is not compared with others.
  for (const WaitingQueue::Line& line : lines) {
    if (line.waiting == 0 || line.cards > 1) continue;
    const size_t i = line.demands.find_first(free);
    if (i == FitTree::kNone || !chooser->choose_on_type(&type, line.jobs[i], card, choice)) continue;
    if (choice->gain >= state->rules.constants->good_gain) return line.jobs[i];
  }
  if (state->rules.soft_shares) free.share = kAnyShare;
  uint32_t best = kNoJob, best_card = card;
  double most_gain = 0;
  for (WaitingQueue::Line& line : lines) {
    const bool gangs = line.cards > 1;
    // These gangs were tried after all cards of this moment had become free.
    if (line.waiting == 0 || (gangs && line.fruitless_ns == now_ns)) continue;
    const size_t most_weighed = gangs ? kMostGangsWeighed : kMostJobsWeighed;
    const uint32_t required_card = gangs ? kAnyCard : card;
    bool any_starts = false;
    for (size_t i = 0, weighed = 0; weighed < most_weighed; ++i, ++weighed) {
      i = line.demands.find_first(gangs ? Capacity{FitTree::kNothing.bytes + 1, kAnyShare} : free, i);
      if (i == FitTree::kNone) break;
      if (!chooser->choose_on_type(&type, line.jobs[i], required_card, choice)) continue;
      any_starts = true;
      if (best != kNoJob && (choice->gain < most_gain || (choice->gain == most_gain && line.jobs[i] > best))) continue;
      best = line.jobs[i];
      best_card = required_card;
      most_gain = choice->gain;
      if (state->cards[card].residents.empty() && most_gain == 1) break;
    }
    if (!any_starts) line.fruitless_ns = now_ns;
  }
  if (best == kNoJob || !chooser->choose_on_type(&type, best, best_card, choice)) return kNoJob;
  return best;
}

}  // namespace gpucast::pack

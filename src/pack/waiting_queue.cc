#include "src/pack/waiting_queue.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace gpucast::pack {

WaitingQueue::WaitingQueue(const std::vector<const Job*>& by_arrival, const std::vector<CardType>* types, bool fair)
    : types_(types), lines_(types->size()), waits_(by_arrival.size()), fair_(fair) {
  for (size_t t = 0; t < types->size(); ++t) {
    TypeLines& of_type = lines_[t];
    of_type.line_index.resize(by_arrival.size());
    of_type.index_in_line.resize(by_arrival.size());
    std::map<int, uint32_t> by_cards;
    for (uint32_t job = 0; job < by_arrival.size(); ++job) {
      if (!(*types)[t].figures[job]) continue;
      const int cards = by_arrival[job]->cards;
      const auto [entry, added] = by_cards.try_emplace(cards, static_cast<uint32_t>(of_type.lines.size()));
      if (added) of_type.lines.emplace_back().cards = cards;
      Line& line = of_type.lines[entry->second];
      of_type.line_index[job] = entry->second;
      of_type.index_in_line[job] = static_cast<uint32_t>(line.jobs.size());
      line.jobs.push_back(job);
    }
    for (Line& line : of_type.lines) line.demands.reset(line.jobs.size());
  }
}

void WaitingQueue::add(uint32_t job) {
  waits_[job] = 1;
  ++waiting_;
  oldest_ = std::min(oldest_, job);
  for (size_t t = 0; t < lines_.size(); ++t) {
    const CardType& type = (*types_)[t];
    if (!type.figures[job]) continue;
    Line& line = lines_[t].lines[lines_[t].line_index[job]];
    line.demands.set(lines_[t].index_in_line[job], negated(type.demands[job]));
    ++line.waiting;
  }
}

void WaitingQueue::count_start(uint32_t job) {
  const bool waited = contains(job);
  if (fair_ && waiting_ > 0) overtakes_ = waited && job == oldest_job() ? 0 : overtakes_ + 1;
  if (!waited) return;
  waits_[job] = 0;
  --waiting_;
  for (size_t t = 0; t < lines_.size(); ++t) {
    if (!(*types_)[t].figures[job]) continue;
    Line& line = lines_[t].lines[lines_[t].line_index[job]];
    line.demands.set(lines_[t].index_in_line[job], FitTree::kNothing);
    --line.waiting;
  }
  if (waiting_ == 0) overtakes_ = 0;
}

uint32_t WaitingQueue::oldest_job() {
  while (!contains(oldest_)) ++oldest_;
  return oldest_;
}

}  // namespace gpucast::pack

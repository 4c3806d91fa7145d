// The state is a set of jobs on each card. Whenever a set changes, the speeds of its jobs are computed anew, and with them when they end;
// nothing else is touched. What an older speed had promised stays in the queue of events and is passed over.
#include "src/pack/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>

#include "gpucast/error.h"
#include "src/pack/fit_tree.h"

namespace gpucast::pack {
namespace {

constexpr int32_t kWhole = 1'000'000;  // a card's share: whole numbers, so that sums are exact
constexpr double kLeastShare = int32_t{kWhole / kMostSharers};
constexpr int32_t kAnyShare = INT32_MIN + 1;
constexpr int64_t kCenturyNs = int64_t{100} * 366 * 24 * 3600 * 1'000'000'000;
constexpr double kMostSliceSlowdown = 2;                                    // where neighbours are weighed: smaller slices are left out
constexpr size_t kJobsWeighed = 64, kGangsWeighed = 4, kCardsWeighed = 64;  // against each other at most
constexpr double kGoodGain = 0.9;                                           // hardly any card would be better

int32_t whole_share(double share) {
  return static_cast<int32_t>(std::clamp(std::ceil(share * kWhole - 1e-6), kLeastShare, double{kWhole}));
}

enum class State : uint8_t { coming, waiting, running, done };

// Jobs are numbered by arrival from here on.
struct Run {
  double left_steps = 0, step_ns = 0;  // step_ns: now, beside its neighbours; 0: it does not run
  int64_t since_ns = 0;                // left_steps is of then
  uint32_t version = 0;                // of the end that is announced
  State state = State::coming;
  bool alone = false;  // it died out of memory and runs alone next time
};

struct Resident {
  uint32_t job = 0;
  double slowdown = 1;
};

struct CardState {
  std::vector<Resident> residents;
  std::vector<KernelMix> mixes;  // of the residents
  std::vector<Slowdown> slower;  // same, as they are now; empty: not known since the residents changed
  Capacity free;
  int64_t used_bytes = 0;
  uint32_t mig_units = 0;  // of memory, by bit
  bool changed = false;
  int64_t since_ns = 0;
  double nvml = 0, occupancy = 0;                // now
  double busy_ns = 0, nvml_ns = 0, full_ns = 0;  // sums until since_ns
};

// Waiting jobs of one gang size that may run on one type.
struct Line {
  int cards = 1;
  std::vector<uint32_t> jobs;
  FitTree tree;  // needs, negated
  int64_t waiting = 0;
  int64_t in_vain_ns = -1;  // gangs that are weighed: none found its cards then
};

struct Type {
  const Gpu* gpu = nullptr;
  uint32_t first_card = 0, card_count = 0;
  int64_t capacity_bytes = 0;
  std::vector<MigProfile> profiles;
  FitTree cards;  // what is free
  std::vector<Line> lines;
  std::vector<const Figures*> figures;  // by job; nullptr: it cannot run here
  std::vector<Capacity> needs;          // by job. MIG: bytes is a profile's number, from 1
  std::vector<uint32_t> places;         // by job, in its line
  std::vector<uint32_t> line_of;        // by job
};

struct End {
  int64_t time_ns = 0;
  uint32_t job = 0, version = 0;
  bool operator>(const End& other) const { return time_ns != other.time_ns ? time_ns > other.time_ns : job > other.job; }
};

Capacity negated(const Capacity& need) { return {-need.bytes, -need.share}; }

class Simulation {
 public:
  Simulation(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options)
      : jobs_(jobs),
        cluster_(cluster),
        options_(options),
        policy_(*options.policy),
        weighs_(policy_.loss && cluster.mode != SharingMode::mig),
        soft_shares_(weighs_ && cluster.mode != SharingMode::mps_limits) {
    plan_.policy = policy_.name;
    plan_.mode = cluster.mode;
    plan_.fair = options.fair;
    plan_.seed = options.seed;
    plan_.jobs.resize(jobs.size());
    plan_.cards.resize(cluster.cards.size());
    order_.resize(jobs.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return jobs[a].arrival_ns < jobs[b].arrival_ns; });
    runs_.resize(jobs.size());
    make_cards();
    for (size_t t = 0; t < types_.size(); ++t) make_type(&types_[t]);
  }

  Plan run() {
    size_t next = 0;
    while (next < order_.size() || !ends_.empty()) {
      int64_t now = INT64_MAX;
      if (next < order_.size()) now = job(next).arrival_ns;
      while (!ends_.empty() && runs_[ends_.top().job].version != ends_.top().version) ends_.pop();
      if (!ends_.empty()) now = std::min(now, ends_.top().time_ns);
      if (now == INT64_MAX) break;
      now_ = now;
      freed_.clear();
      while (!ends_.empty() && ends_.top().time_ns == now) {
        const End end = ends_.top();
        ends_.pop();
        if (runs_[end.job].version == end.version) finish(end.job);
      }
      const size_t first = next;
      for (; next < order_.size() && job(next).arrival_ns == now; ++next) ++plan_.events;
      place_waiting();
      place_arrivals(static_cast<uint32_t>(first), static_cast<uint32_t>(next));
      for (const uint32_t card : changed_) update(card);
      changed_.clear();
    }
    summarize();
    return std::move(plan_);
  }

 private:
  const Job& job(size_t number) const { return jobs_[order_[number]]; }
  Placement& placement(size_t number) { return plan_.jobs[order_[number]]; }
  Type& type_of(uint32_t card) { return types_[cluster_.cards[card].type]; }

  void make_cards() {
    types_.resize(cluster_.types.size());
    cards_.resize(cluster_.cards.size());
    for (size_t t = 0; t < types_.size(); ++t) {
      types_[t].gpu = &cluster_.types[t];
      types_[t].capacity_bytes = static_cast<int64_t>(cluster_.types[t].total_memory_bytes);
      if (cluster_.mode == SharingMode::mig) types_[t].profiles = mig_profiles(cluster_.types[t]);
    }
    for (uint32_t c = 0; c < cards_.size(); ++c) {
      Type& type = type_of(c);
      if (type.card_count++ == 0) type.first_card = c;
      cards_[c].since_ns = order_.empty() ? 0 : job(0).arrival_ns;
      cards_[c].free = cluster_.mode == SharingMode::mig ? Capacity{static_cast<int64_t>(type.profiles.size()), 0}
                                                         : Capacity{type.capacity_bytes, kWhole};
    }
    for (Type& type : types_) {
      type.cards.reset(type.card_count);
      for (uint32_t c = 0; c < type.card_count; ++c) type.cards.set(c, cards_[type.first_card + c].free);
    }
  }

  // What the job takes of a card; unset: the card is too small for it.
  std::optional<Capacity> need_of(const Type& type, const Figures& figures) const {
    if (cluster_.mode != SharingMode::mig) {
      if (policy_.sees_memory && figures.request_bytes > type.capacity_bytes) return std::nullopt;
      double share = soft_shares_ ? demand_of(figures) : policy_.share(figures);
      if (cluster_.mode == SharingMode::mps_limits) share = std::max(share, limit_of(figures));
      return Capacity{policy_.sees_memory ? figures.request_bytes : 0, whole_share(share)};
    }
    for (size_t p = 0; p < type.profiles.size(); ++p) {
      const MigProfile& profile = type.profiles[p];
      const bool last = p + 1 == type.profiles.size();
      if (policy_.sees_memory && figures.request_bytes > profile.bytes) continue;
      if (!last && profile.compute_share < policy_.share(figures)) continue;
      if (!last && policy_.loss && alone_slowdown(type, figures, static_cast<int>(p)) > kMostSliceSlowdown) continue;
      return Capacity{static_cast<int64_t>(p) + 1, 0};
    }
    return std::nullopt;
  }

  // Of a card's time: where such sums stay within 1, jobs are hardly in each other's way.
  static double demand_of(const Figures& figures) { return mix_of(figures).busy; }

  // In whole percents, as CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
  static double limit_of(const Figures& figures) {
    const KernelMix mix = mix_of(figures);
    return std::clamp(std::ceil(100 * std::max({mix.sm_active, mix.warps, mix.compute, mix.tensor}) - 1e-9), 1.0, 100.0) / 100;
  }

  KernelMix limited_mix(const Type& type, const Figures& figures, const Capacity& need, int mig_profile) const {
    KernelMix mix = mix_of(figures);
    if (cluster_.mode == SharingMode::mps_limits) mix.compute_limit = static_cast<double>(need.share) / kWhole;
    if (mig_profile >= 0) {
      mix.compute_limit = type.profiles[static_cast<size_t>(mig_profile)].compute_share;
      mix.memory_limit = type.profiles[static_cast<size_t>(mig_profile)].memory_share;
    }
    return mix;
  }

  double alone_slowdown(const Type& type, const Figures& figures, int mig_profile) const {
    const KernelMix mix = limited_mix(type, figures, {0, kWhole}, mig_profile);
    return slowdowns(std::span(&mix, 1), *type.gpu, cluster_.mode).front().expected;
  }

  void make_type(Type* type) {
    const size_t count = order_.size();
    type->figures.resize(count);
    type->needs.resize(count);
    type->places.resize(count);
    type->line_of.resize(count);
    std::map<int, uint32_t> lines;
    for (uint32_t number = 0; number < count; ++number) {
      const Figures* figures = job(number).on(type->gpu->id);
      if (!figures || job(number).cards > static_cast<int64_t>(type->card_count)) continue;
      const std::optional<Capacity> need = need_of(*type, *figures);
      if (!need) continue;
      type->figures[number] = figures;
      type->needs[number] = *need;
      const auto [found, added] = lines.try_emplace(job(number).cards, static_cast<uint32_t>(type->lines.size()));
      if (added) type->lines.push_back({job(number).cards, {}, FitTree(), 0, -1});
      type->line_of[number] = found->second;
      Line& line = type->lines[found->second];
      type->places[number] = static_cast<uint32_t>(line.jobs.size());
      line.jobs.push_back(number);
    }
    for (Line& line : type->lines) line.tree.reset(line.jobs.size());
  }

  // ---- the queue ----------------------------------------------------------------------------------------------------------
  Capacity need(const Type& type, uint32_t number) const {
    Capacity out = type.needs[number];
    if (runs_[number].alone) {
      if (cluster_.mode == SharingMode::mig)
        out.bytes = static_cast<int64_t>(type.profiles.size());
      else
        out.share = kWhole;
    }
    return out;
  }

  void wait(uint32_t number) {
    runs_[number].state = State::waiting;
    ++waiting_;
    for (Type& type : types_) {
      if (!type.figures[number]) continue;
      Line& line = type.lines[type.line_of[number]];
      line.tree.set(type.places[number], negated(need(type, number)));
      ++line.waiting;
    }
    oldest_ = std::min(oldest_, number);
  }

  // It starts.
  void leave_queue(uint32_t number) {
    const bool waited = runs_[number].state == State::waiting;
    if (options_.fair && waiting_ > 0) overtakes_ = waited && number == oldest() ? 0 : overtakes_ + 1;
    if (!waited) return;
    runs_[number].state = State::coming;
    --waiting_;
    for (Type& type : types_) {
      if (!type.figures[number]) continue;
      Line& line = type.lines[type.line_of[number]];
      line.tree.set(type.places[number], FitTree::kNothing);
      --line.waiting;
    }
    if (waiting_ == 0) overtakes_ = 0;
  }

  uint32_t oldest() {
    while (waiting_ > 0 && runs_[oldest_].state != State::waiting) ++oldest_;
    return oldest_;
  }
  bool only_the_oldest() { return options_.fair && waiting_ > 0 && overtakes_ >= kMostOvertakes; }

  // ---- choosing cards -------------------------------------------------------------------------------------------------------
  bool fits(const Type& type, uint32_t number, uint32_t card) const {
    return cards_[card].free.covers(soft_shares_ ? room(type, number) : need(type, number));
  }
  // What a card needs at least to be weighed.
  Capacity room(const Type& type, uint32_t number) const {
    Capacity out = need(type, number);
    if (soft_shares_) out.share = kAnyShare;
    return out;
  }

  // Types from the one that is fastest for the job.
  void sort_types(uint32_t number) {
    by_speed_.clear();
    for (Type& type : types_)
      if (type.figures[number]) by_speed_.push_back(&type);
    std::stable_sort(by_speed_.begin(), by_speed_.end(),
                     [&](const Type* a, const Type* b) { return a->figures[number]->step_ns < b->figures[number]->step_ns; });
  }

  // As many cards as the job needs, in `chosen_`; `card`: one of them, unless it is kAny.
  static constexpr uint32_t kAny = UINT32_MAX;
  bool choose(Type* type, uint32_t number, uint32_t card) {
    chosen_.clear();
    gain_ = 0;
    const auto wanted = static_cast<size_t>(job(number).cards);
    if (weighs_) return choose_weighing(type, number, card, wanted);
    if (card != kAny) {
      if (!fits(*type, number, card)) return false;
      chosen_.push_back(card);
    }
    const Capacity needed = need(*type, number);
    for (size_t at = 0; chosen_.size() < wanted; ++at) {
      at = type->cards.first(needed, at);
      if (at == FitTree::kNone) return false;
      const auto found = static_cast<uint32_t>(type->first_card + at);
      if (found != card) chosen_.push_back(found);
    }
    return true;
  }

  // One more job on a card: what becomes of it, and what that costs those that are there.
  struct Sitting {
    double slowdown = 1, loss = 0;
    double gain() const { return 1 / slowdown - loss; }
  };
  Sitting sitting(const Type& type, uint32_t number, uint32_t card) {
    CardState& state = cards_[card];
    if (state.residents.empty()) return {alone_slowdown(type, *type.figures[number], -1), 0};
    if (state.slower.empty()) state.slower = slowdowns(state.mixes, *type.gpu, cluster_.mode);
    state.mixes.push_back(limited_mix(type, *type.figures[number], need(type, number), -1));
    const std::vector<Slowdown> after = slowdowns(state.mixes, *type.gpu, cluster_.mode);
    state.mixes.pop_back();
    Sitting out = {after.back().expected, 0};
    for (size_t i = 0; i < state.residents.size(); ++i) out.loss += policy_.loss(state.slower[i], after[i]);
    return out;
  }

  bool choose_weighing(Type* type, uint32_t number, uint32_t card, size_t wanted) {
    Sitting all;  // on all chosen cards
    const auto take = [&](const Sitting& one, uint32_t chosen) {
      all.slowdown = std::max(all.slowdown, one.slowdown);
      all.loss += one.loss;
      chosen_.push_back(chosen);
    };
    if (card != kAny) {
      if (!fits(*type, number, card)) return false;
      take(sitting(*type, number, card), card);
    }
    // Idle cards, then those on which nobody is in the way, then any.
    const Capacity harmless = need(*type, number);
    for (const Capacity& wants : {Capacity{harmless.bytes, kWhole}, harmless}) {
      const size_t before = chosen_.size();
      for (size_t at = 0; chosen_.size() < wanted; ++at) {
        at = type->cards.first(wants, at);
        if (at == FitTree::kNone) break;
        const auto found = static_cast<uint32_t>(type->first_card + at);
        if (std::find(chosen_.begin(), chosen_.begin() + static_cast<std::ptrdiff_t>(before), found) !=
            chosen_.begin() + static_cast<std::ptrdiff_t>(before))
          continue;
        if (cards_[found].residents.size() < kMostSharers) take(sitting(*type, number, found), found);
      }
    }
    if (chosen_.size() < wanted) {
      weigh(*type, number, room(*type, number), std::max(kCardsWeighed, wanted));
      if (chosen_.size() + weighed_.size() < wanted) return false;
      for (size_t i = 0; chosen_.size() < wanted; ++i) take(weighed_[i].first, weighed_[i].second);
    }
    const auto cards = static_cast<double>(wanted);
    gain_ = (cards / all.slowdown - all.loss) / cards;
    return gain_ > kLeastGain;
  }

  // A part of the cards that have jobs and room, from a place that differs from job to job; the best first.
  void weigh(const Type& type, uint32_t number, const Capacity& needed, size_t window) {
    weighed_.clear();
    size_t missing = static_cast<size_t>(job(number).cards) - chosen_.size();
    const size_t begin = mixed(options_.seed + number) % type.card_count;
    for (const auto& [from, to] : {std::pair<size_t, size_t>(begin, type.card_count), std::pair<size_t, size_t>(0, begin)})
      for (size_t at = from; weighed_.size() < window && missing > 0; ++at) {
        at = type.cards.first(needed, at);
        if (at == FitTree::kNone || at >= to) break;
        const auto card = static_cast<uint32_t>(type.first_card + at);
        if (cards_[card].residents.size() >= kMostSharers || std::find(chosen_.begin(), chosen_.end(), card) != chosen_.end()) continue;
        weighed_.emplace_back(sitting(type, number, card), card);
        if (weighed_.back().first.gain() >= kGoodGain) --missing;
      }
    std::sort(weighed_.begin(), weighed_.end(), [](const auto& a, const auto& b) {
      return a.first.gain() != b.first.gain() ? a.first.gain() > b.first.gain() : a.second < b.second;
    });
  }

  static uint64_t mixed(uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  bool place_anywhere(uint32_t number) {
    sort_types(number);
    if (!weighs_ || by_speed_.size() < 2) {
      for (Type* type : by_speed_) {
        if (!choose(type, number, kAny)) continue;
        start(type, number);
        return true;
      }
      return false;
    }
    // Of the types, where it comes forward fastest: gain over step time.
    Type* best = nullptr;
    double most = 0;
    for (Type* type : by_speed_) {
      if (!choose(type, number, kAny)) continue;
      const double speed = gain_ / type->figures[number]->step_ns;
      if (speed <= most) continue;
      most = speed;
      best = type;
    }
    if (!best || !choose(best, number, kAny)) return false;
    start(best, number);
    return true;
  }

  // ---- events -----------------------------------------------------------------------------------------------------------------
  // Cards have become free: jobs that wait may fit.
  void place_waiting() {
    std::sort(freed_.begin(), freed_.end());
    freed_.erase(std::unique(freed_.begin(), freed_.end()), freed_.end());
    if (!options_.fair) {
      if (waiting_ > 0)
        for (const uint32_t card : freed_) serve(card);
      return;
    }
    unserved_.insert(freed_.begin(), freed_.end());
    size_t tried = 0;  // of untried_
    const auto keep_rest = [&] { untried_.erase(untried_.begin(), untried_.begin() + static_cast<std::ptrdiff_t>(tried)); };
    while (waiting_ > 0) {
      if (only_the_oldest()) {
        if (!place_anywhere(oldest())) return keep_rest();
        continue;
      }
      if (untried_.size() > tried) {
        const uint32_t number = untried_[tried++];
        if (runs_[number].state == State::waiting) place_anywhere(number);
        continue;
      }
      untried_.clear();
      tried = 0;
      if (unserved_.empty()) return;
      const uint32_t card = *unserved_.begin();
      if (serve(card)) unserved_.erase(card);
    }
    unserved_.clear();
    untried_.clear();
  }

  // Waiting jobs onto this card until none fits. False: under `fair` it is the oldest's turn.
  bool serve(uint32_t card) {
    Type& type = type_of(card);
    for (;;) {
      if (only_the_oldest()) return false;
      const bool placed = weighs_ ? serve_weighing(&type, card) : serve_first(&type, card);
      if (!placed) return true;
    }
  }

  // The first in the queue that fits.
  bool serve_first(Type* type, uint32_t card) {
    uint32_t first = kAny;
    const Capacity free = negated(cards_[card].free);
    for (Line& line : type->lines) {
      if (line.waiting == 0) continue;
      failed_.clear();
      // A gang that finds no cards rules out all that need as much.
      const auto worth = [&](const Capacity& least) {
        return std::none_of(failed_.begin(), failed_.end(), [&](const Capacity& failed) { return negated(least).covers(failed); });
      };
      for (size_t at = 0;; ++at) {
        at = line.tree.first(free, at, worth);
        if (at == FitTree::kNone || line.jobs[at] >= first) break;
        if (line.cards == 1 || choose(type, line.jobs[at], card)) {
          first = line.jobs[at];
          break;
        }
        failed_.push_back(need(*type, line.jobs[at]));
      }
    }
    if (first == kAny || !choose(type, first, card)) return false;
    start(type, first);
    return true;
  }

  // Of the first in the queue that fit, the one that brings the card forward most; of equal ones the first.
  bool serve_weighing(Type* type, uint32_t card) {
    if (cards_[card].residents.size() >= kMostSharers) return false;
    uint32_t best = kAny;
    double most = 0;
    Capacity free = negated(cards_[card].free);
    for (Line& line : type->lines) {
      if (line.waiting == 0 || line.cards > 1) continue;
      // Where nobody is in the way there is no need to look on.
      if (const size_t at = line.tree.first(free); at != FitTree::kNone && choose(type, line.jobs[at], card) && gain_ >= kGoodGain) {
        start(type, line.jobs[at]);
        return true;
      }
    }
    if (soft_shares_) free.share = kAnyShare;
    for (Line& line : type->lines) {
      const bool gangs = line.cards > 1;
      // What became free at this moment was all there when they were tried first.
      if (line.waiting == 0 || (gangs && line.in_vain_ns == now_)) continue;
      const size_t most_seen = gangs ? kGangsWeighed : kJobsWeighed;
      bool found = false;
      for (size_t at = 0, seen = 0; seen < most_seen; ++at, ++seen) {
        at = line.tree.first(gangs ? Capacity{FitTree::kNothing.bytes + 1, kAnyShare} : free, at);
        if (at == FitTree::kNone) break;
        if (!choose(type, line.jobs[at], gangs ? kAny : card)) continue;
        found = true;
        if (best != kAny && (gain_ < most || (gain_ == most && line.jobs[at] > best))) continue;
        best = line.jobs[at];
        most = gain_;
        if (cards_[card].residents.empty() && most == 1) break;
      }
      if (!found) line.in_vain_ns = now_;
    }
    if (best == kAny || !choose(type, best, job(best).cards > 1 ? kAny : card)) return false;
    start(type, best);
    return true;
  }

  void place_arrivals(uint32_t first, uint32_t end) {
    for (uint32_t number = first; number < end; ++number) {
      const bool possible = std::any_of(types_.begin(), types_.end(), [&](const Type& type) { return type.figures[number] != nullptr; });
      if (!possible) {
        runs_[number].state = State::done;
        placement(number).outcome = Outcome::never_fits;
        continue;
      }
      const bool turn = !only_the_oldest();
      if (!turn) untried_.push_back(number);
      // Several at once are weighed against each other below.
      if (!turn || (weighs_ && end - first > 1 && !place_idle(number)) || (runs_[number].state == State::coming && !place_anywhere(number)))
        wait_unless_placed(number);
    }
    if (!weighs_ || end - first < 2) return;
    for (uint32_t card = 0; card < cards_.size() && waiting_ > 0; ++card)
      if (!serve(card)) {
        for (uint32_t number = first; number < end; ++number) untried_.push_back(number);
        return;
      }
  }

  void wait_unless_placed(uint32_t number) {
    if (runs_[number].state == State::coming) wait(number);
  }

  bool place_idle(uint32_t number) {
    sort_types(number);
    for (Type* type : by_speed_) {
      Capacity idle = need(*type, number);
      idle.share = kWhole;
      chosen_.clear();
      for (size_t at = 0; chosen_.size() < static_cast<size_t>(job(number).cards); ++at) {
        at = type->cards.first(idle, at);
        if (at == FitTree::kNone) break;
        chosen_.push_back(static_cast<uint32_t>(type->first_card + at));
      }
      if (chosen_.size() < static_cast<size_t>(job(number).cards)) continue;
      gain_ = 1;
      start(type, number);
      return true;
    }
    return false;
  }

  Reason reason_of(uint32_t number) const {
    if (runs_[number].alone) return Reason::alone_after_out_of_memory;
    if (cluster_.mode == SharingMode::mig) return Reason::slice_fits;
    bool idle = true;
    for (const uint32_t card : chosen_) idle = idle && cards_[card].residents.empty();
    if (idle) return Reason::idle_card;
    if (weighs_) return Reason::best_neighbour;
    return policy_.sees_memory ? Reason::memory_fits : Reason::share_fits;
  }

  // On the cards of `chosen_`.
  void start(Type* type, uint32_t number) {
    Run& run = runs_[number];
    const Figures& figures = *type->figures[number];
    const Capacity needed = need(*type, number);
    const int profile = cluster_.mode == SharingMode::mig ? static_cast<int>(needed.bytes) - 1 : -1;
    leave_queue(number);
    Placement& out = placement(number);
    out.start_ns = now_;
    out.reason = reason_of(number);
    out.cards = chosen_;
    std::sort(out.cards.begin(), out.cards.end());
    out.request_bytes = figures.request_bytes;
    out.mig_profile = profile;
    out.gain = weighs_ ? gain_ : 0;
    out.share = profile >= 0 ? type->profiles[static_cast<size_t>(profile)].compute_share : static_cast<double>(needed.share) / kWhole;
    out.neighbours.clear();
    const bool dies = std::any_of(chosen_.begin(), chosen_.end(), [&](uint32_t card) {
      const int64_t capacity = profile >= 0 ? type->profiles[static_cast<size_t>(profile)].bytes : type->capacity_bytes;
      return figures.request_bytes + (profile >= 0 ? 0 : cards_[card].used_bytes) > capacity;
    });
    if (dies) {
      ++plan_.events;
      ++out.out_of_memory_runs;
      ++plan_.out_of_memory_runs;
      const int64_t most = type->profiles.empty() ? type->capacity_bytes : type->profiles.back().bytes;
      const bool again = !run.alone && figures.request_bytes <= most;
      run.state = State::done;
      if (again) {
        run.alone = true;
        run.state = State::coming;
        if (!place_again(number)) wait(number);
      } else {
        out.outcome = Outcome::out_of_memory;
        out.end_ns = now_;
        ++plan_.out_of_memory_jobs;
      }
      return;
    }
    run.state = State::running;
    run.left_steps = static_cast<double>(job(number).steps);
    run.step_ns = 0;
    run.since_ns = now_;
    for (const uint32_t card : chosen_) {
      CardState& state = cards_[card];
      account(card);
      if (options_.neighbours)
        for (const Resident& other : state.residents) out.neighbours.push_back(order_[other.job]);
      state.residents.push_back({number, 1});
      state.mixes.push_back(limited_mix(*type, figures, needed, profile));
      state.slower.clear();
      state.used_bytes += figures.request_bytes;
      if (profile >= 0)
        take_slice(*type, profile, &state, number);
      else
        state.free = {state.free.bytes - needed.bytes, state.free.share - needed.share};
      type->cards.set(card - type->first_card, state.free);
      CardUse& use = plan_.cards[card];
      use.most_bytes = std::max(use.most_bytes, state.used_bytes);
      use.most_jobs = std::max(use.most_jobs, static_cast<int>(state.residents.size()));
      ++use.jobs;
      change(card);
    }
    if (chosen_.size() > 1) {
      std::sort(out.neighbours.begin(), out.neighbours.end());
      out.neighbours.erase(std::unique(out.neighbours.begin(), out.neighbours.end()), out.neighbours.end());
    }
  }

  // A job that has just died, alone this time.
  bool place_again(uint32_t number) {
    const std::vector<uint32_t> chosen = chosen_;
    const bool placed = !only_the_oldest() && place_anywhere(number);
    if (!placed) chosen_ = chosen;
    return placed;
  }

  void change(uint32_t card) {
    if (cards_[card].changed) return;
    cards_[card].changed = true;
    changed_.push_back(card);
  }

  void finish(uint32_t number) {
    Run& run = runs_[number];
    Placement& out = placement(number);
    ++plan_.events;
    ++run.version;
    run.state = State::done;
    out.outcome = Outcome::finished;
    out.end_ns = now_;
    Type& type = type_of(out.cards.front());
    const Figures& figures = *type.figures[number];
    const Capacity needed = need(type, number);
    out.slowdown = static_cast<double>(now_ - out.start_ns) / (static_cast<double>(job(number).steps) * figures.step_ns);
    for (const uint32_t card : out.cards) {
      CardState& state = cards_[card];
      account(card);
      const auto found = std::find_if(state.residents.begin(), state.residents.end(), [&](const Resident& r) { return r.job == number; });
      state.mixes.erase(state.mixes.begin() + (found - state.residents.begin()));
      state.residents.erase(found);
      state.slower.clear();
      state.used_bytes -= figures.request_bytes;
      if (out.mig_profile >= 0)
        give_slice(type, out.mig_profile, &state, number);
      else
        state.free = {state.free.bytes + needed.bytes, state.free.share + needed.share};
      type.cards.set(card - type.first_card, state.free);
      change(card);
      freed_.push_back(card);
    }
  }

  // ---- MIG ------------------------------------------------------------------------------------------------------------------
  static uint32_t units_of(const MigProfile& profile, int start) { return ((1U << profile.memory) - 1) << start; }
  static int64_t largest(const Type& type, uint32_t taken) {
    for (size_t p = type.profiles.size(); p > 0; --p)
      for (const int start : type.profiles[p - 1].starts)
        if ((units_of(type.profiles[p - 1], start) & taken) == 0) return static_cast<int64_t>(p);
    return 0;
  }
  // Where it leaves most room for the next.
  void take_slice(const Type& type, int profile, CardState* state, uint32_t number) {
    const MigProfile& slice = type.profiles[static_cast<size_t>(profile)];
    uint32_t best = 0;
    int64_t most = -1;
    for (const int start : slice.starts) {
      const uint32_t units = units_of(slice, start);
      if ((units & state->mig_units) != 0) continue;
      const int64_t left = largest(type, state->mig_units | units);
      if (left <= most) continue;
      most = left;
      best = units;
    }
    state->mig_units |= best;
    slices_[{number, static_cast<uint32_t>(state - cards_.data())}] = best;
    state->free = {largest(type, state->mig_units), 0};
  }
  void give_slice(const Type& type, int /*profile*/, CardState* state, uint32_t number) {
    const auto found = slices_.find({number, static_cast<uint32_t>(state - cards_.data())});
    state->mig_units &= ~found->second;
    slices_.erase(found);
    state->free = {largest(type, state->mig_units), 0};
  }

  // ---- speeds -----------------------------------------------------------------------------------------------------------------
  // The card's set of jobs has changed.
  void update(uint32_t card) {
    CardState& state = cards_[card];
    state.changed = false;
    state.nvml = state.occupancy = 0;
    if (state.residents.empty()) return;
    const Type& type = type_of(card);
    const std::vector<Slowdown> slower = slowdowns(state.mixes, *type.gpu, cluster_.mode);
    if (weighs_) state.slower = slower;
    double idle = 1;
    for (size_t i = 0; i < slower.size(); ++i) {
      Resident& resident = state.residents[i];
      resident.slowdown = slower[i].expected;
      const Figures& figures = *type.figures[resident.job];
      // Turns add up; kernels of several processes at once may fall into the same moment.
      if (cluster_.mode == SharingMode::timeslice) state.nvml += figures.nvml_utilization / resident.slowdown;
      idle *= 1 - std::min(1.0, figures.nvml_utilization);
      state.occupancy += figures.occupancy * figures.nvml_utilization / resident.slowdown;
    }
    if (cluster_.mode != SharingMode::timeslice) state.nvml = 1 - idle;
    state.nvml = std::min(1.0, state.nvml);
    state.occupancy = std::min(1.0, state.occupancy);
    for (const Resident& resident : state.residents) set_speed(resident.job, type, card, resident.slowdown);
  }

  void set_speed(uint32_t number, const Type& type, uint32_t card, double slowdown) {
    Run& run = runs_[number];
    const std::vector<uint32_t>& cards = plan_.jobs[order_[number]].cards;
    if (cards.size() > 1)  // a gang goes at the pace of its slowest
      for (const uint32_t other : cards) {
        if (other == card) continue;
        for (const Resident& resident : cards_[other].residents)
          if (resident.job == number) slowdown = std::max(slowdown, resident.slowdown);
      }
    const double step_ns = type.figures[number]->step_ns * slowdown;
    if (step_ns == run.step_ns) return;
    if (run.step_ns > 0) run.left_steps = std::max(0.0, run.left_steps - static_cast<double>(now_ - run.since_ns) / run.step_ns);
    run.step_ns = step_ns;
    run.since_ns = now_;
    const double end = static_cast<double>(now_) + std::ceil(run.left_steps * step_ns);
    if (!(end < static_cast<double>(kCenturyNs)))
      throw Error("the plan lasts longer than a century", job(number).name, "more cards, or fewer steps");
    ends_.push({now_ + static_cast<int64_t>(std::ceil(run.left_steps * step_ns)), number, ++run.version});
  }

  // What the card did since it last changed.
  void account(uint32_t card) {
    CardState& state = cards_[card];
    const auto ns = static_cast<double>(now_ - state.since_ns);
    state.since_ns = now_;
    if (state.residents.empty()) return;
    state.busy_ns += ns;
    state.nvml_ns += ns * state.nvml;
    state.full_ns += ns * state.occupancy;
  }

  // ---- the sums -----------------------------------------------------------------------------------------------------------------
  static double quantile(std::vector<double>* values, double q) {
    if (values->empty()) return 0;
    const auto at = static_cast<size_t>(std::ceil(q * static_cast<double>(values->size()))) - (q > 0 ? 1 : 0);
    std::nth_element(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(at), values->end());
    return (*values)[at];
  }

  void summarize() {
    if (order_.empty()) return;
    plan_.first_arrival_ns = job(0).arrival_ns;
    int64_t last = plan_.first_arrival_ns;
    std::vector<double> jct, queued;
    double slower = 0, hours = 0;
    for (size_t number = 0; number < order_.size(); ++number) {
      const Placement& out = placement(number);
      if (out.outcome == Outcome::never_fits) ++plan_.never_fits;
      if (out.outcome != Outcome::finished) continue;
      ++plan_.finished;
      last = std::max(last, out.end_ns);
      jct.push_back(static_cast<double>(out.end_ns - job(number).arrival_ns));
      queued.push_back(static_cast<double>(out.start_ns - job(number).arrival_ns));
      slower += out.slowdown;
      hours += static_cast<double>(out.end_ns - out.start_ns) * static_cast<double>(out.cards.size()) / 3.6e12;
    }
    plan_.makespan_ns = last - plan_.first_arrival_ns;
    plan_.job_gpu_hours = hours;
    if (!jct.empty()) {
      const auto count = static_cast<double>(jct.size());
      plan_.mean_jct_ns = std::accumulate(jct.begin(), jct.end(), 0.0) / count;
      plan_.mean_queue_ns = std::accumulate(queued.begin(), queued.end(), 0.0) / count;
      plan_.mean_slowdown = slower / count;
      plan_.p50_jct_ns = quantile(&jct, 0.5);
      plan_.p99_jct_ns = quantile(&jct, 0.99);
      plan_.p99_queue_ns = quantile(&queued, 0.99);
    }
    now_ = last;
    const auto span = static_cast<double>(plan_.makespan_ns);
    for (uint32_t c = 0; c < cards_.size(); ++c) {
      const CardState& state = cards_[c];
      plan_.gpu_hours += state.busy_ns / 3.6e12;
      if (span <= 0) continue;
      CardUse& use = plan_.cards[c];
      use.busy = state.busy_ns / span;
      use.nvml = state.nvml_ns / span;
      use.occupancy = state.full_ns / span;
      const auto cards = static_cast<double>(cards_.size());
      plan_.utilization += use.busy / cards;
      plan_.nvml += use.nvml / cards;
      plan_.occupancy += use.occupancy / cards;
    }
  }

  std::span<const Job> jobs_;
  const Cluster& cluster_;
  const PackOptions& options_;
  const Policy& policy_;
  const bool weighs_, soft_shares_;  // soft: shares of a card may add up to more than it has
  Plan plan_;
  std::vector<uint32_t> order_;  // numbers to places in jobs_
  std::vector<Run> runs_;
  std::vector<Type> types_;
  std::vector<CardState> cards_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> slices_;  // units of a job's slice on a card
  int64_t now_ = 0, waiting_ = 0, overtakes_ = 0;
  uint32_t oldest_ = 0;
  std::vector<uint32_t> untried_;  // jobs that came while it was the oldest's turn
  std::set<uint32_t> unserved_;
  // Filled and used within one event.
  std::vector<uint32_t> freed_, changed_, chosen_;
  std::vector<Type*> by_speed_;
  std::vector<Capacity> failed_;
  std::vector<std::pair<Sitting, uint32_t>> weighed_;
  double gain_ = 0;
};

}  // namespace

Plan simulate(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options) {
  return Simulation(jobs, cluster, options).run();
}

}  // namespace gpucast::pack

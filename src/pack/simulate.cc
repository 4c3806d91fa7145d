// The event loop. When the set of jobs on a card changes, only their slowdowns and their times of ending are computed again. The earlier
// entries for these jobs stay in the queue of ends and are ignored.
#include "src/pack/simulate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

#include "gpucast/error.h"
#include "src/pack/choose_cards.h"
#include "src/pack/choose_job.h"
#include "src/pack/cluster_state.h"
#include "src/pack/plan_totals.h"
#include "src/pack/waiting_queue.h"

namespace gpucast::pack {
namespace {

constexpr int64_t kCenturyNs = int64_t{100} * 366 * 24 * 3600 * 1'000'000'000;

struct Progress {
  double remaining_steps = 0;  // at since_ns
  double step_ns = 0;          // now, with its neighbours; 0: it does not run
  int64_t since_ns = 0;
  uint32_t version = 0;           // of its valid entry in the queue of ends
  bool needs_whole_card = false;  // it ran out of memory on a shared card
};

struct JobEnd {
  int64_t time_ns = 0;
  uint32_t job = 0, version = 0;
  bool operator>(const JobEnd& other) const { return time_ns != other.time_ns ? time_ns > other.time_ns : job > other.job; }
};

// Alone, on the type of card where it is fastest; a gang's is the sum over its cards.
double length_ns(const Job& job, const Cluster& cluster) {
  double step_ns = 0;
  for (const Gpu& gpu : cluster.types)
    if (const Figures* figures = job.figures_on(gpu.id)) step_ns = step_ns > 0 ? std::min(step_ns, figures->step_ns) : figures->step_ns;
  return static_cast<double>(job.steps) * step_ns * job.cards;
}

std::vector<const Job*> jobs_by_arrival(std::span<const Job> jobs, std::span<const uint32_t> order) {
  std::vector<const Job*> out;
  out.reserve(order.size());
  for (const uint32_t index : order) out.push_back(&jobs[index]);
  return out;
}

// Jobs are numbered by arrival.
class Simulation {
 public:
  Simulation(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options)
      : fair_(options.fair),
        lists_neighbours_(options.neighbours),
        rules_(sharing_rules(*options.policy, cluster.mode, options.constants)),
        order_(order_of_jobs(jobs, cluster, options.order, options.turns)),
        jobs_(jobs_by_arrival(jobs, order_)),
        state_(idle_cluster(cluster, rules_, jobs_)),
        queue_(jobs_, &state_.types, options.fair),
        chooser_(&jobs_, &state_, options.seed),
        progress_(jobs.size()) {
    plan_.policy = options.policy->name;
    plan_.mode = cluster.mode;
    plan_.fair = options.fair;
    plan_.seed = options.seed;
    plan_.order = options.order;
    plan_.jobs.resize(jobs.size());
    plan_.cards.resize(cluster.cards.size());
  }

  Plan run() {
    uint32_t next = 0;  // the next job to arrive
    while (next < jobs_.size() || !ends_.empty()) {
      int64_t now_ns = INT64_MAX;
      if (next < jobs_.size()) now_ns = jobs_[next]->arrival_ns;
      while (!ends_.empty() && is_outdated(ends_.top())) ends_.pop();
      if (!ends_.empty()) now_ns = std::min(now_ns, ends_.top().time_ns);
      if (now_ns == INT64_MAX) break;
      now_ns_ = now_ns;
      freed_cards_.clear();
      while (!ends_.empty() && ends_.top().time_ns == now_ns) {
        const JobEnd end = ends_.top();
        ends_.pop();
        if (!is_outdated(end)) finish(end.job);
      }
      const uint32_t first = next;
      for (; next < jobs_.size() && jobs_[next]->arrival_ns == now_ns; ++next) ++plan_.events;
      place_waiting();
      place_arrivals(first, next);
      for (const uint32_t card : changed_cards_) update_speeds(card);
      changed_cards_.clear();
    }
    add_totals(jobs_, order_, state_.cards, &plan_);
    return std::move(plan_);
  }

 private:
  bool is_outdated(const JobEnd& end) const { return progress_[end.job].version != end.version; }
  Placement& placement_of(uint32_t job) { return plan_.jobs[order_[job]]; }

  // ---- starting jobs ---------------------------------------------------------------------------------------------------------
  // Tries waiting jobs after cards became free.
  void place_waiting() {
    std::sort(freed_cards_.begin(), freed_cards_.end());
    freed_cards_.erase(std::unique(freed_cards_.begin(), freed_cards_.end()), freed_cards_.end());
    if (!fair_) {
      if (!queue_.empty())
        for (const uint32_t card : freed_cards_) fill_card(card);
      return;
    }
    unserved_cards_.insert(freed_cards_.begin(), freed_cards_.end());
    size_t tried = 0;  // how many of untried_jobs_
    while (!queue_.empty()) {
      if (queue_.only_oldest_may_start()) {
        if (!place_on_any_type(queue_.oldest_job())) {
          untried_jobs_.erase(untried_jobs_.begin(), untried_jobs_.begin() + static_cast<std::ptrdiff_t>(tried));
          return;
        }
        continue;
      }
      if (untried_jobs_.size() > tried) {
        const uint32_t job = untried_jobs_[tried++];
        if (queue_.contains(job)) place_on_any_type(job);
        continue;
      }
      untried_jobs_.clear();
      tried = 0;
      if (unserved_cards_.empty()) return;
      const uint32_t card = *unserved_cards_.begin();
      if (fill_card(card)) unserved_cards_.erase(card);
    }
    unserved_cards_.clear();
    untried_jobs_.clear();
  }

  // Starts waiting jobs on the card until none fits. False: only the oldest job may start, so the others were not tried.
  bool fill_card(uint32_t card) {
    for (;;) {
      if (queue_.only_oldest_may_start()) return false;
      const uint32_t job = rules_.weighs_neighbours ? best_job_for_card(card, now_ns_, &state_, &queue_, &chooser_, &choice_)
                                                    : first_job_that_fits(card, &state_, &queue_, &chooser_, &choice_);
      if (job == kNoJob) return true;
      start(job);
    }
  }

  void place_arrivals(uint32_t first, uint32_t end) {
    // If several jobs arrive at once and no card is idle, the best of them is chosen for each card.
    const bool weighs_arrivals = rules_.weighs_neighbours && end - first > 1;
    for (uint32_t job = first; job < end; ++job) {
      const bool is_possible =
          std::any_of(state_.types.begin(), state_.types.end(), [&](const CardType& type) { return type.figures[job] != nullptr; });
      if (!is_possible) {
        placement_of(job).outcome = Outcome::never_fits;
        continue;
      }
      bool is_placed = false;
      if (queue_.only_oldest_may_start())
        untried_jobs_.push_back(job);
      else
        is_placed = weighs_arrivals ? place_on_idle_cards(job) : place_on_any_type(job);
      if (!is_placed) queue_.add(job);
    }
    if (!weighs_arrivals) return;
    for (uint32_t card = 0; card < state_.cards.size() && !queue_.empty(); ++card) {
      if (fill_card(card)) continue;
      for (uint32_t job = first; job < end; ++job) untried_jobs_.push_back(job);
      return;
    }
  }

  bool place_on_any_type(uint32_t job) {
    if (!chooser_.choose_on_any_type(job, &choice_)) return false;
    start(job);
    return true;
  }

  bool place_on_idle_cards(uint32_t job) {
    if (!chooser_.choose_idle(job, &choice_)) return false;
    start(job);
    return true;
  }

  // ---- a start and an end ---------------------------------------------------------------------------------------------------
  Reason reason_for_choice(uint32_t job) const {
    if (progress_[job].needs_whole_card) return Reason::alone_after_out_of_memory;
    if (rules_.mode == SharingMode::mig) return Reason::slice_fits;
    const bool are_idle =
        std::all_of(choice_.cards.begin(), choice_.cards.end(), [&](uint32_t card) { return state_.cards[card].residents.empty(); });
    if (are_idle) return Reason::idle_card;
    if (rules_.weighs_neighbours) return Reason::best_neighbour;
    return rules_.policy->sees_memory ? Reason::memory_fits : Reason::share_fits;
  }

  // Starts the job on the cards of `choice_`.
  void start(uint32_t job) {
    const CardType& type = *choice_.type;
    const Capacity demand = type.demands[job];
    queue_.count_start(job);
    Placement& placed = placement_of(job);
    placed.start_ns = now_ns_;
    placed.reason = reason_for_choice(job);
    placed.cards = choice_.cards;
    std::sort(placed.cards.begin(), placed.cards.end());
    placed.request_bytes = type.figures[job]->request_bytes;
    placed.mig_profile = mig_profile_of(demand, rules_.mode);
    placed.gain = rules_.weighs_neighbours ? choice_.gain : 0;
    placed.share = placed.mig_profile >= 0 ? type.size.profiles[static_cast<size_t>(placed.mig_profile)].compute_share
                                           : static_cast<double>(demand.share) / kWholeCard;
    placed.neighbours.clear();
    if (std::any_of(choice_.cards.begin(), choice_.cards.end(), [&](uint32_t card) { return lacks_memory(state_, type, job, card); })) {
      run_out_of_memory(job);
      return;
    }
    progress_[job].remaining_steps = static_cast<double>(jobs_[job]->steps);
    progress_[job].step_ns = 0;
    progress_[job].since_ns = now_ns_;
    for (const uint32_t card : choice_.cards) {
      const CardState& there = state_.cards[card];
      if (lists_neighbours_)
        for (const Resident& neighbour : there.residents) placed.neighbours.push_back(order_[neighbour.job]);
      add_resident(job, card, now_ns_, &state_);
      CardUse& use = plan_.cards[card];
      use.most_bytes = std::max(use.most_bytes, there.used_bytes);
      use.most_jobs = std::max(use.most_jobs, static_cast<int>(there.residents.size()));
      ++use.jobs;
      mark_changed(card);
    }
    if (choice_.cards.size() > 1) {
      std::sort(placed.neighbours.begin(), placed.neighbours.end());
      placed.neighbours.erase(std::unique(placed.neighbours.begin(), placed.neighbours.end()), placed.neighbours.end());
    }
  }

  // The job ends at its start. It runs again on a whole card, if one is large enough. It may start at once, which overwrites `choice_`.
  void run_out_of_memory(uint32_t job) {
    const CardSize& size = choice_.type->size;
    Placement& placed = placement_of(job);
    ++plan_.events;
    ++placed.out_of_memory_runs;
    ++plan_.out_of_memory_runs;
    const int64_t most_bytes = size.profiles.empty() ? size.capacity_bytes : size.profiles.back().bytes;
    if (progress_[job].needs_whole_card || placed.request_bytes > most_bytes) {
      placed.outcome = Outcome::out_of_memory;
      placed.end_ns = now_ns_;
      ++plan_.out_of_memory_jobs;
      return;
    }
    progress_[job].needs_whole_card = true;
    demand_whole_card(job, &state_);
    if (queue_.only_oldest_may_start() || !place_on_any_type(job)) queue_.add(job);
  }

  void finish(uint32_t job) {
    ++plan_.events;
    ++progress_[job].version;
    Placement& placed = placement_of(job);
    placed.outcome = Outcome::finished;
    placed.end_ns = now_ns_;
    const double alone_ns = static_cast<double>(jobs_[job]->steps) * state_.type_of(placed.cards.front()).figures[job]->step_ns;
    placed.slowdown = static_cast<double>(now_ns_ - placed.start_ns) / alone_ns;
    for (const uint32_t card : placed.cards) {
      remove_resident(job, card, now_ns_, &state_);
      mark_changed(card);
      freed_cards_.push_back(card);
    }
  }

  void mark_changed(uint32_t card) {
    if (state_.cards[card].changed) return;
    state_.cards[card].changed = true;
    changed_cards_.push_back(card);
  }

  // ---- speeds ---------------------------------------------------------------------------------------------------------------
  void update_speeds(uint32_t card) {
    refresh_slowdowns(card, &state_);
    for (const Resident& resident : state_.cards[card].residents)
      set_step_time(resident.job, state_.type_of(card).figures[resident.job]->step_ns * slowest_pace(resident, card));
  }

  // A gang runs at the speed of its slowest card.
  double slowest_pace(const Resident& resident, uint32_t card) const {
    double slowdown = resident.slowdown;
    const std::vector<uint32_t>& cards = plan_.jobs[order_[resident.job]].cards;
    if (cards.size() == 1) return slowdown;
    for (const uint32_t other_card : cards) {
      if (other_card == card) continue;
      for (const Resident& same : state_.cards[other_card].residents)
        if (same.job == resident.job) slowdown = std::max(slowdown, same.slowdown);
    }
    return slowdown;
  }

  void set_step_time(uint32_t job, double step_ns) {
    Progress& progress = progress_[job];
    if (step_ns == progress.step_ns) return;
    if (progress.step_ns > 0) {
      const double done = static_cast<double>(now_ns_ - progress.since_ns) / progress.step_ns;
      progress.remaining_steps = std::max(0.0, progress.remaining_steps - done);
    }
    progress.step_ns = step_ns;
    progress.since_ns = now_ns_;
    const double remaining_ns = std::ceil(progress.remaining_steps * step_ns);
    if (!(static_cast<double>(now_ns_) + remaining_ns < static_cast<double>(kCenturyNs)))
      throw Error("the plan lasts longer than a century", jobs_[job]->name, "more cards, or fewer steps");
    ends_.push({now_ns_ + static_cast<int64_t>(remaining_ns), job, ++progress.version});
  }

  const bool fair_, lists_neighbours_;
  const SharingRules rules_;
  const std::vector<uint32_t> order_;  // by arrival: indices into Plan::jobs
  const std::vector<const Job*> jobs_;
  ClusterState state_;
  WaitingQueue queue_;
  CardChooser chooser_;
  std::vector<Progress> progress_;
  Plan plan_;
  std::priority_queue<JobEnd, std::vector<JobEnd>, std::greater<>> ends_;
  int64_t now_ns_ = 0;
  // `fair`: jobs and cards that were not tried while only the oldest job could start.
  std::vector<uint32_t> untried_jobs_;
  std::set<uint32_t> unserved_cards_;
  // Filled and used within one event.
  std::vector<uint32_t> freed_cards_, changed_cards_;
  CardChoice choice_;
};

}  // namespace

std::vector<uint32_t> order_of_jobs(std::span<const Job> jobs, const Cluster& cluster, JobOrder order, std::span<const uint32_t> turns) {
  std::vector<uint32_t> out(jobs.size());
  std::iota(out.begin(), out.end(), 0U);
  std::stable_sort(out.begin(), out.end(), [&](uint32_t a, uint32_t b) { return jobs[a].arrival_ns < jobs[b].arrival_ns; });
  if (order == JobOrder::arrival) return out;
  std::vector<double> keys;  // the least first
  keys.reserve(jobs.size());
  if (order == JobOrder::searched)
    keys.assign(turns.begin(), turns.end());
  else
    for (const Job& job : jobs) keys.push_back((order == JobOrder::longest_first ? -1 : 1) * length_ns(job, cluster));
  std::stable_sort(out.begin(), out.end(),
                   [&](uint32_t a, uint32_t b) { return std::pair(jobs[a].arrival_ns, keys[a]) < std::pair(jobs[b].arrival_ns, keys[b]); });
  return out;
}

Plan simulate(std::span<const Job> jobs, const Cluster& cluster, const PackOptions& options) {
  return Simulation(jobs, cluster, options).run();
}

}  // namespace gpucast::pack

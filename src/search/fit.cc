#include "src/search/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/replay.h"
#include "gpucast/step_time.h"
#include "src/base/bytes.h"
#include "src/base/seconds_since.h"
#include "src/predict/analysis.h"
#include "src/predict/least_capacity.h"
#include "src/predict/repeated_steps.h"
#include "src/search/boundary.h"
#include "src/search/run_problem.h"
#include "src/search/scaled_history.h"
#include "src/search/script_options.h"

namespace gpucast::search {
namespace {

constexpr int kMostRounds = 60;
constexpr int kMostProofs = 20;  // rounds of them, for one card
// On a full card tensors find other places from step to step. An answer must hold for this number of steps, unless the user names one.
constexpr int64_t kLastingSteps = 20;
constexpr std::ptrdiff_t kMostNumbers = 4;  // that a message shows
constexpr int64_t kUsualStart = 8;          // where the command does not say a value
constexpr int kMostGuesses = 5;             // by scaled runs, of one search
constexpr double kNear = 0.15;              // of the card's memory: a run this near to the limit, scaled, says where to prove the answer
constexpr int64_t kMostScale = 64;          // of a value that was run

// One search on one card: for the value that is expected to run, or that runs with the requested probability.
struct Target {
  size_t card = 0;
  bool at_confidence = false;
  std::map<int64_t, Seen> seen;  // by place
  int64_t last_width = 0;
  std::set<int64_t> proved;  // places that ran, or ran out of memory, under the card's limit
  std::set<int64_t> longer;  // places whose proof must run more steps
  bool asked = false;        // in this round
  bool stuck = false;
  bool done = false;
  int guesses = 0, proof_guesses = 0, proof_rounds = 0;
  int64_t replay_says = -1;                   // the place of the answer by replays
  std::map<int64_t, MarkedHistory> at_limit;  // by place: runs under the card's limit

  Target(size_t its_card, bool confident) : card(its_card), at_confidence(confident) {}
  // Between the largest that is ok and the next that is not; 0: one of them is not known.
  int64_t width() const {
    const auto [ok, bad] = bracket(seen);
    return ok && bad ? *bad - *ok : 0;
  }
};

// The cards of one compute capability: they share their runs.
struct Group {
  // Of any of its cards.
  static const FitPoint& any_of(const std::map<size_t, FitPoint>& points) { return points.begin()->second; }

  bool has_point(int64_t place, size_t card) const {
    const auto at = points.find(place);
    return at != points.end() && at->second.contains(card);
  }

  std::vector<size_t> cards;
  std::string problem;                                   // the script fails on these cards, whatever the value is
  std::map<int64_t, std::map<size_t, FitPoint>> points;  // by place and card
  std::map<int64_t, MarkedHistory> histories;            // by place
};

// The memory that a card leaves to PyTorch's allocator in a run like `point`.
int64_t allocator_bytes(const FitPoint& point, const Gpu& card, bool at_confidence) {
  const int64_t beside = point.expected_bytes - point.peak_reserved_bytes;
  const int64_t margin = at_confidence ? point.request_bytes - point.expected_bytes : 0;
  return static_cast<int64_t>(card.total_memory_bytes) - beside - margin;
}

bool is_timeout(const Run& run) { return run.problem && run.problem->code == "timeout"; }

FitPoint point_of(const Run& run, int64_t value, const Vary& vary) {
  FitPoint point;
  point.value = value;
  point.setting = setting_text(vary, value);
  point.run = run_line(run.spec);
  point.cached = run.cached;
  if (run.end == RunEnd::captured) return point;
  point.failed = true;
  point.problem = run_problem(run);
  point.timed_out = is_timeout(run);
  return point;
}

// What the captures say on one card. Of several ranks, the largest.
void judge_point(const std::vector<std::shared_ptr<const Facts>>& ranks, const Gpu& card, double confidence, FitPoint* point) {
  for (const auto& facts : ranks) {
    const Prediction p = judge(facts, card.id, confidence).prediction;
    const int64_t need = p.min_capacity_bytes.value_or(p.device.expected_bytes);
    if (need < point->need_bytes) continue;
    point->need_bytes = need;
    point->peak_reserved_bytes = p.peak_reserved.bytes;
    point->peak_allocated_bytes = p.peak_allocated.bytes;
    point->expected_bytes = p.device.expected_bytes;
    point->request_bytes = p.device.request_bytes;
    const bool judged = p.verdict != Verdict::none && p.verdict != Verdict::does_not_fit;
    point->runs = judged && need <= p.gpu_total_bytes;
    point->runs_99 = judged && need - p.device.expected_bytes + p.device.request_bytes <= p.gpu_total_bytes;
    if (p.verdict == Verdict::none) {
      point->failed = true;
      point->problem = p.verdict_reason;
    }
  }
}

// Unset: memory alone is known, because no step was observed or a stage of a pipeline was not captured.
std::optional<StepTimes> times_of(const std::vector<const Facts*>& ranks, const StepTimeOptions& options) {
  try {
    return step_times(ranks, options);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void time_point(const std::vector<std::shared_ptr<const Facts>>& ranks, const Gpu& card, FitPoint* point) {
  StepTimeOptions options;
  options.gpus = {card};
  const auto times = times_of(pointers_to(ranks), options);
  if (!times) return;
  point->step_ns = times->cards.front().step.expected_ns;
  point->samples_per_s = times->cards.front().samples_per_s;
}

class FitSearch {
 public:
  FitSearch(const FitQuestion& question, Runs* runs) : q_(question), runs_(runs) {
    for (size_t card = 0; card < q_.cards.size(); ++card) {
      group_of(card).cards.push_back(card);
      targets_.emplace_back(card, false);
      targets_.emplace_back(card, true);
    }
  }

  Fit find() {
    for (int round = 0; round < kMostRounds && run_round(); ++round) {
    }
    run_next();
    Fit fit;
    fit.name = q_.vary.name;
    fit.what = q_.vary.now ? setting_text(q_.vary, *q_.vary.now) : setting_text(q_.vary, q_.values.front());
    fit.command = q_.spec.command;
    fit.low = q_.values.front();
    fit.high = q_.values.back();
    fit.confidence = q_.confidence;
    for (size_t card = 0; card < q_.cards.size(); ++card) fit.answers.push_back(answer(card));
    fit.run_count = run_count_;
    fit.cached_count = cached_count_;
    fit.notes = notes(fit);
    return fit;
  }

 private:
  Group& group_of(size_t card) { return groups_[compute_capability(q_.cards[card])]; }

  int64_t value_at(int64_t place) const { return q_.values[static_cast<size_t>(place)]; }

  int64_t start() const { return place_of(q_.vary.now.value_or(kUsualStart)); }

  int64_t place_of(int64_t value) const {
    const auto at = std::ranges::upper_bound(q_.values, value);
    return std::max<int64_t>(at - q_.values.begin() - 1, 0);
  }

  // Places to look at, by group.
  std::map<Group*, std::set<int64_t>> wanted() {
    std::map<Group*, std::set<int64_t>> out;
    for (Target& target : targets_) {
      if (!group_of(target.card).problem.empty()) continue;
      std::vector<int64_t> places;
      const std::optional<int64_t> guess = guessed(target);
      if (guess) target.done = is_done(target, *guess);
      if (guess && !target.seen.contains(*guess)) {
        if (!target.done) {
          ++target.guesses;
          places = {*guess};
        }
      } else if (!target.done && (!target.at_confidence || is_looked_at(targets_[2 * target.card]))) {
        // The lower answer is looked for when the other one is known: most of its places are.
        places = next_of(target, start());
        target.asked = !places.empty();
      }
      out[&group_of(target.card)].insert(places.begin(), places.end());
    }
    return out;
  }

  // The expected answer is proved by runs under the limit, so a run near it is enough here: it says which runs those are. The answer with
  // the requested probability is a run that is ok, where the next value is not if that run is scaled.
  bool is_done(const Target& target, int64_t guess) const {
    if (target.at_confidence) return target.seen.contains(guess);
    const auto limit = static_cast<double>(q_.cards[target.card].total_memory_bytes);
    const auto is_near = [&](const auto& at) { return std::abs(at.second.over.value_or(limit)) < kNear * limit; };
    return bracket(target.seen).ok && std::ranges::any_of(target.seen, is_near);
  }

  // The largest place that fits if the run nearest to the limit is scaled. Unset: there are no two runs of the same form, nothing fits, or
  // guesses have not helped.
  std::optional<int64_t> guessed(const Target& target) {
    return target.done || target.guesses == kMostGuesses ? std::nullopt : guessed_at_all(target);
  }

  std::optional<int64_t> guessed_at_all(const Target& target) {
    const Group& group = group_of(target.card);
    std::vector<int64_t> known;
    for (const auto& [place, history] : group.histories) {
      // Not one that a proof has refuted.
      if (group.has_point(place, target.card) && target.seen.contains(place) && target.seen.at(place).over) known.push_back(place);
    }
    if (known.empty()) return std::nullopt;
    // Of small runs that need the same, the largest.
    const int64_t base =
        *std::ranges::min_element(known, {}, [&](int64_t place) { return std::pair(std::abs(*target.seen.at(place).over), -place); });
    return guessed_from(target, base, group.histories.at(base));
  }

  std::optional<int64_t> guessed_from(const Target& target, int64_t base, const MarkedHistory& run) {
    const Group& group = group_of(target.card);
    const Gpu& card = q_.cards[target.card];
    // Growth since the nearest run that is not a neighbour. Two neighbours would say little.
    std::vector<double> growth;
    int64_t nearest = 0;
    for (const auto& [place, history] : group.histories) {
      const int64_t distance = std::abs(value_at(place) - value_at(base));
      if (distance * 5 < value_at(base) || (nearest > 0 && distance >= nearest)) continue;
      std::vector<double> between = growth_bytes(run, value_at(base), history, value_at(place));
      if (between.empty()) continue;
      growth = std::move(between);
      nearest = distance;
    }
    if (growth.empty()) return std::nullopt;
    const int64_t capacity = allocator_bytes(group.points.at(base).at(target.card), card, target.at_confidence);
    const auto [known_ok, known_bad] = bracket(target.seen);
    int64_t ok = known_ok.value_or(-1), bad = known_bad.value_or(static_cast<int64_t>(q_.values.size()));
    bad = std::min(bad, place_of(value_at(base) * kMostScale) + 1);
    while (bad > ok + 1) {
      const int64_t middle = ok + (bad - ok) / 2;
      const History history = scaled(run, growth, value_at(middle) - value_at(base));
      (runs_at(lasting(history, run.step_ends), capacity, static_cast<int64_t>(card.total_memory_bytes)).runs ? ok : bad) = middle;
    }
    return ok < 0 ? std::nullopt : std::optional(ok);
  }

  // With further steps like the last, if the last two do the same.
  History lasting(const History& history, const std::vector<size_t>& step_ends) const {
    const int64_t more = kLastingSteps - std::ssize(step_ends);
    const RepeatedSteps repeated(history, step_ends, 1);
    return q_.spec.steps.empty() && more > 0 && repeated.known() ? repeated.continued(static_cast<size_t>(more)) : history;
  }

  // Whether further steps run, too, where a proof has run. Unset: only a longer run can show it.
  std::optional<bool> lasts(const Facts& proof, const Gpu& card, int64_t capacity) const {
    const std::vector<size_t> ends = step_end_ops(proof.history, proof.trace);
    if (!q_.spec.steps.empty() || !goes_on(proof)) return true;
    if (!RepeatedSteps(proof.history, ends, 1).known()) return std::nullopt;
    const auto total = static_cast<int64_t>(card.total_memory_bytes);
    if (!runs_at(proof.history, capacity, total).runs) return true;  // the replay knows less than the proof
    const History more = lasting(proof.history, ends);
    const ReplayResult result = replay(more, settings_at(more, capacity, total));
    if (!result.first_oom) return true;
    // A library that gets no memory for its workspace takes a smaller one.
    return is_workspace(more, static_cast<size_t>(result.first_oom->op)) ? std::nullopt : std::optional(false);
  }

  std::vector<int64_t> next_of(const Target& target, int64_t start) const {
    return next_places(target.seen, static_cast<int64_t>(q_.values.size()), start, target.stuck);
  }

  // Looks at places, and proves the answers of the cards where they are known. False: nothing was left to do.
  bool run_round() {
    std::map<Group*, std::set<int64_t>> places = wanted();
    const std::vector<Proof> proofs = wanted_proofs(&places);
    std::vector<RunSpec> specs;
    const std::vector<Look> looks = add_looks(places, &specs);
    for (const auto& [target, place] : proofs) {
      RunSpec spec = q_.with(q_.spec, value_at(place));
      spec.gpu = q_.cards[target->card].id;
      spec.enforce_capacity = true;
      if (target->longer.contains(place)) spec.steps = std::to_string(kLastingSteps);
      specs.push_back(std::move(spec));
    }
    if (specs.empty()) return false;
    const std::vector<Run> done = runs_->run(specs);
    for (size_t i = 0; i < looks.size(); ++i) take(done[i], looks[i].group, looks[i].place);
    for (size_t i = 0; i < proofs.size(); ++i) take_proof(done[looks.size() + i], proofs[i].target, proofs[i].place);
    narrow();
    if (!looks.empty()) check_that_it_matters();
    return true;
  }

  struct Look {
    Group* group;
    int64_t place;
  };
  struct Proof {
    Target* target;
    int64_t place;
  };

  std::vector<Look> add_looks(const std::map<Group*, std::set<int64_t>>& places, std::vector<RunSpec>* specs) const {
    std::vector<Look> out;
    for (const auto& [group, of_group] : places) {
      for (const int64_t place : of_group) {
        RunSpec spec = q_.with(q_.spec, value_at(place));
        spec.gpu = q_.cards[group->cards.front()].id;
        specs->push_back(std::move(spec));
        out.push_back({group, place});
      }
    }
    return out;
  }

  // Each card's answer and the next value run under the card's limit: PyTorch's own allocator decides. On a full card libraries take less
  // memory for their workspaces, and tensors find other places, so an answer may move. The next value will run out of memory, so it is
  // also run without the limit, for its need: added to `places`, unless a proof was wrong before.
  std::vector<Proof> wanted_proofs(std::map<Group*, std::set<int64_t>>* places) {
    std::vector<Proof> out;
    for (size_t i = 0; i < targets_.size(); i += 2) {
      Target& target = targets_[i];
      if (!is_looked_at(target) || target.proof_rounds == kMostProofs) continue;
      const std::vector<int64_t> unproved_places = unproved(target);
      if (unproved_places.empty()) continue;
      for (const int64_t place : unproved_places) out.push_back({&target, place});
      Group& group = group_of(target.card);
      if (++target.proof_rounds == 1 && !group.has_point(unproved_places.back(), target.card))
        (*places)[&group].insert(unproved_places.back());
    }
    return out;
  }

  // Whether no more places without a limit are needed.
  bool is_looked_at(const Target& target) const { return target.done || (!target.seen.empty() && next_of(target, start()).empty()); }

  // The answer's place and the next one, if they are not proved yet; before they are known, places on the way to them.
  std::vector<int64_t> unproved(Target& target) {
    const auto [ok, bad] = bracket(target.seen);
    const auto last = static_cast<int64_t>(q_.values.size()) - 1;
    if (!ok) return {};
    std::vector<int64_t> out;
    if (bad ? *bad > *ok + 1 : *ok < last) {
      out = on_the_way(target, *ok, bad.value_or(last + 1));
    } else {
      const bool is_limit = bad && target.seen.at(*bad).over.has_value();  // not a script that fails
      if (target.proved.empty()) target.replay_says = *ok;
      out.push_back(*ok);
      if (is_limit) out.push_back(*bad);
    }
    std::erase_if(out, [&](int64_t place) { return target.proved.contains(place); });
    return out;
  }

  // Where the last run under the limit, or else the nearest one, crosses it if it is scaled; where that does not help, by thirds.
  std::vector<int64_t> on_the_way(Target& target, int64_t ok, int64_t bad) {
    if (target.proof_guesses < kMostGuesses) {
      const auto run = target.at_limit.find(ok);
      const bool moved_up = run != target.at_limit.end();
      const bool without = moved_up && target.proof_guesses < 2;
      target.proof_guesses += 1 + (without ? 1 : 0);
      const auto guess =
          !moved_up ? guessed_at_all(target) : guessed_from(target, ok, without ? without_workspaces(run->second) : run->second);
      if (guess) {
        if (!moved_up) target.replay_says = *guess;
        std::vector<int64_t> out = {*guess, *guess + 1};
        std::erase_if(out, [&](int64_t place) { return place < ok || place >= bad; });
        return out;
      }
    }
    if (bad > static_cast<int64_t>(q_.values.size()) - 1 && !target.seen.contains(bad))
      return {std::min(ok + (int64_t{1} << std::min<size_t>(target.proved.size(), 20)), bad - 1)};
    const int64_t third = std::max<int64_t>((bad - ok) / 3, 1);
    return bad == ok + 2 ? std::vector{ok + 1} : std::vector{ok + third, bad - third};
  }

  void take_proof(const Run& run, Target* target, int64_t place) {
    ++run_count_;
    cached_count_ += run.cached ? 1 : 0;
    const size_t card = target->card;
    std::vector<std::shared_ptr<const Facts>> ranks;
    if (run.end == RunEnd::captured) ranks = facts_of(run);
    FitPoint proof = judged(run, ranks, place, card);
    bool ran = run.end == RunEnd::captured;
    for (const auto& rank : ranks) {
      const auto rank_lasts = lasts(*rank, q_.cards[card], allocator_bytes(proof, q_.cards[card], false));
      if (!rank_lasts && target->longer.insert(place).second) return;
      ran = ran && rank_lasts.value_or(true);
    }
    target->proved.insert(place);
    std::map<size_t, FitPoint>& points = group_of(card).points[place];
    const bool was_seen = target->seen.contains(place);
    if (run.end == RunEnd::failed && was_seen) return;  // not about memory: the replay's answer stays
    if (!ranks.empty()) {
      MarkedHistory history = marked_history(*ranks.front());
      const auto& others = group_of(card).histories;  // of fewer steps
      if (!others.empty()) history = beginning_of(std::move(history), others.begin()->second.marks.size());
      target->at_limit.emplace(place, std::move(history));
    }
    if (ran || run.end == RunEnd::failed) points.emplace(card, std::move(proof));
    if (run.end == RunEnd::failed) {
      target->seen[place] = {};
      return;
    }
    // The replays that refused larger values were wrong too.
    if (ran && place > target->replay_says) {
      std::erase_if(target->seen, [&](const auto& at) {
        const bool refused = at.first > place && !target->proved.contains(at.first);
        if (refused) group_of(card).points[at.first].erase(card);
        return refused;
      });
    }
    target->seen[place] = {ran, target->seen[place].over.value_or(0)};
    if (const auto point = points.find(card); point != points.end()) {
      point->second.runs = ran;
      point->second.runs_99 = point->second.runs_99 && ran;
      targets_[2 * card + 1].seen[place].ok = point->second.runs_99;
    }
  }

  // Values that ran out of memory under the limit, and were not run without it: their need is not known.
  void run_next() {
    std::map<Group*, std::set<int64_t>> places;
    for (size_t card = 0; card < q_.cards.size(); ++card) {
      const auto bad = bracket(targets_[2 * card].seen).bad;
      if (bad && !group_of(card).has_point(*bad, card)) places[&group_of(card)].insert(*bad);
    }
    std::vector<RunSpec> specs;
    const std::vector<Look> looks = add_looks(places, &specs);
    const std::vector<Run> done = specs.empty() ? std::vector<Run>() : runs_->run(specs);
    for (size_t i = 0; i < looks.size(); ++i) take(done[i], looks[i].group, looks[i].place);
  }

  FitPoint judged(const Run& run, const std::vector<std::shared_ptr<const Facts>>& ranks, int64_t place, size_t card) const {
    FitPoint point = point_of(run, value_at(place), q_.vary);
    if (ranks.empty()) return point;
    judge_point(ranks, q_.cards[card], q_.confidence, &point);
    time_point(ranks, q_.cards[card], &point);
    return point;
  }

  void take(const Run& run, Group* group, int64_t place) {
    ++run_count_;
    cached_count_ += run.cached ? 1 : 0;
    if (run.problem) last_problem_ = run;
    std::vector<std::shared_ptr<const Facts>> ranks;
    if (run.end == RunEnd::captured) ranks = facts_of(run);
    if (q_.vary.kind == VaryKind::loader && !ranks.empty())
      has_no_loader_ = std::ranges::none_of(ranks.front()->trace.header.what_if, &WhatIf::acted);
    if (!ranks.empty()) group->histories.emplace(place, marked_history(*ranks.front()));
    for (const size_t card : group->cards) {
      FitPoint point = judged(run, ranks, place, card);
      Target &expected = targets_[2 * card], &confident = targets_[2 * card + 1];
      if (expected.proved.contains(place)) {
        point.runs = expected.seen[place].ok;
        point.runs_99 = point.runs_99 && point.runs;
      }
      const auto limit = static_cast<double>(q_.cards[card].total_memory_bytes);
      const double margin = static_cast<double>(point.request_bytes - point.expected_bytes);
      const auto over = [&](double more) {
        return point.failed ? std::optional<double>() : static_cast<double>(point.need_bytes) + more - limit;
      };
      expected.seen[place] = {point.runs, over(0)};
      confident.seen[place] = {point.runs_99, over(margin)};
      group->points[place].insert_or_assign(card, std::move(point));
    }
  }

  // A target whose own looks have hardly narrowed its range halves it next.
  void narrow() {
    for (Target& target : targets_) {
      if (!std::exchange(target.asked, false)) continue;
      const int64_t width = target.width();
      target.stuck = target.last_width > 0 && width * 2 > target.last_width && !target.stuck;
      target.last_width = width;
    }
  }

  // After the first looks: the script fails in each, or does the same whatever the value is.
  void check_that_it_matters() {
    bool any_runs = false;
    for (auto& [capability, group] : groups_) {
      if (group.points.empty()) continue;
      const FitPoint &first = Group::any_of(group.points.begin()->second), &last = Group::any_of(group.points.rbegin()->second);
      if (std::ranges::all_of(group.points, [](const auto& at) { return Group::any_of(at.second).failed; })) {
        group.problem = first.problem;
        continue;
      }
      any_runs = true;
      const auto is_as_the_first = [&](const auto& at) {
        const FitPoint& point = Group::any_of(at.second);
        return !point.failed && point.need_bytes == first.need_bytes && point.peak_allocated_bytes == first.peak_allocated_bytes;
      };
      // A small model's first two values may differ by less than its optimizer needs.
      if ((group.points.size() > 2 || has_no_loader_) && std::ranges::all_of(group.points, is_as_the_first)) {
        if (has_no_loader_)
          throw Error(
              "no batch was found: no option with a usual name in the command or in the script, and no DataLoader with a batch_size",
              last.run, what_sets_the_batch());
        throw Error(fmt::format("the script takes the same memory with {} and with {}: {}", first.setting, last.setting,
                                format_bytes(first.peak_reserved_bytes)),
                    last.run, "it may ignore this setting; name another, e.g. --vary batch=--batch-size:1..512");
      }
    }
    if (!any_runs) fail();
  }

  std::string what_sets_the_batch() const {
    if (const std::vector<OptionNumber> fields = batch_fields(q_.spec.command, "."); !fields.empty())
      return "name what sets it, e.g. " + vary_line(fields.front());
    const std::vector<std::string> numbers = batch_numbers(q_.spec.command, ".");
    if (numbers.empty())
      return "name what sets it, e.g. --vary batch=--my-batch:1..512 or batch=config.yaml:my_batch; where it is a number in the source, "
             "make it an option";
    return fmt::format("make the number in the source an option of the script, e.g. --batch-size, and ask again: {}",
                       fmt::join(numbers.begin(), numbers.begin() + std::min<std::ptrdiff_t>(std::ssize(numbers), kMostNumbers), ", "));
  }

  // From an eighth of its number up: where it counts tokens or the like, no script takes 1.
  static std::string vary_line(const OptionNumber& field) {
    const int64_t step = std::max<int64_t>(field.number / 8, 1);
    return fmt::format("--vary batch={}:{}..{}{}", field.option, step, field.number * 64, step == 1 ? "" : fmt::format("/{}", step));
  }

  [[noreturn]] void fail() const {
    throw ScriptFails(
        "the script does not run: " + run_problem(last_problem_), run_line(last_problem_.spec),
        is_timeout(last_problem_) ? "give it more time: --timeout SECONDS" : "run this line to see more; --vary names what to vary");
  }

  FitAnswer answer(size_t card) {
    Group& group = group_of(card);
    FitAnswer out;
    out.gpu_id = q_.cards[card].id;
    out.gpu_name = q_.cards[card].name;
    out.capacity_bytes = q_.cards[card].total_memory_bytes;
    std::map<int64_t, size_t> index;
    for (const auto& [place, of_cards] : group.points) {
      const auto point = of_cards.find(card);
      if (point == of_cards.end()) continue;
      index[place] = out.points.size();
      out.points.push_back(point->second);
    }
    const auto [ok, bad] = bracket(targets_[2 * card].seen);
    if (ok) out.largest = index[*ok];
    if (const auto ok_99 = bracket(targets_[2 * card + 1].seen).ok; ok && ok_99) out.largest_99 = index[std::min(*ok, *ok_99)];
    if (bad) out.next = index[*bad];
    for (size_t i = 0; i < out.points.size(); ++i) {
      if (!out.largest || i > *out.largest || !out.points[i].runs || out.points[i].samples_per_s <= 0) continue;
      if (!out.fastest || out.points[i].samples_per_s > out.points[*out.fastest].samples_per_s) out.fastest = i;
    }
    return out;
  }

  std::vector<std::string> notes(const Fit& fit) const {
    std::vector<std::string> out;
    for (const auto& [capability, group] : groups_) {
      if (!group.problem.empty()) out.push_back(fmt::format("On {} the script fails: {}", q_.cards[group.cards.front()].id, group.problem));
    }
    for (const FitAnswer& answer : fit.answers) {
      const FitPoint &first = answer.points.front(), &last = answer.points.back();
      if (!first.failed && !last.failed && last.need_bytes < first.need_bytes)
        out.push_back(fmt::format("On {} memory falls from {} with {} to {} with {}.", answer.gpu_id, format_bytes(first.need_bytes),
                                  first.setting, format_bytes(last.need_bytes), last.setting));
      if (answer.largest && answer.next && answer.points[*answer.next].timed_out)
        out.push_back(fmt::format("On {} the limit is time, not memory: with {} {}. Give it more: --timeout SECONDS.", answer.gpu_id,
                                  answer.points[*answer.next].setting, answer.points[*answer.next].problem));
      else if (answer.largest && answer.next && answer.points[*answer.next].failed)
        out.push_back(
            fmt::format("On {} the limit is the script, not memory: with {} it fails ({}). If it takes only some values, name "
                        "their step: LOW..HIGH/STEP.",
                        answer.gpu_id, answer.points[*answer.next].setting, answer.points[*answer.next].problem));
    }
    return out;
  }

  const FitQuestion& q_;
  Runs* runs_;
  std::map<std::pair<int, int>, Group> groups_;  // by compute capability
  std::vector<Target> targets_;                  // two a card
  Run last_problem_;
  bool has_no_loader_ = false;
  int64_t run_count_ = 0, cached_count_ = 0;
};

}  // namespace

Fit find_fit(const FitQuestion& question, Runs* runs) {
  const auto start = Clock::now();
  Fit fit = FitSearch(question, runs).find();
  fit.seconds = seconds_since(start);
  return fit;
}

}  // namespace gpucast::search

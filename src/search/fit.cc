#include "src/search/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/step_time.h"
#include "src/base/bytes.h"
#include "src/base/seconds_since.h"
#include "src/predict/analysis.h"
#include "src/search/boundary.h"
#include "src/search/run_problem.h"

namespace gpucast::search {
namespace {

constexpr int kMostRounds = 40;
constexpr int kMostProofs = 20;
constexpr int64_t kUsualStart = 8;  // where the command does not say a value

// One search on one card: for the value that is expected to run, or that runs with the requested probability.
struct Target {
  size_t card = 0;
  bool at_confidence = false;
  std::map<int64_t, Seen> seen;  // by place
  int64_t last_width = 0;
  std::set<int64_t> proved;  // places that ran, or ran out of memory, under the card's limit
  bool asked = false;        // in this round
  bool stuck = false;

  Target(size_t its_card, bool confident) : card(its_card), at_confidence(confident) {}
  // Between the largest that is ok and the next that is not; 0: one of them is not known.
  int64_t width() const {
    const auto [ok, bad] = bracket(seen);
    return ok && bad ? *bad - *ok : 0;
  }
};

// The cards of one compute capability: they share their runs.
struct Group {
  // Where a card's points stand.
  size_t place_in(size_t card) const { return static_cast<size_t>(std::ranges::find(cards, card) - cards.begin()); }

  std::vector<size_t> cards;
  std::string problem;                              // the script fails on these cards, whatever the value is
  std::map<int64_t, std::vector<FitPoint>> points;  // by place, in the order of `cards`
};

FitPoint point_of(const Run& run, int64_t value, const Vary& vary) {
  FitPoint point;
  point.value = value;
  point.setting = setting_text(vary, value);
  point.run = run_line(run.spec);
  point.cached = run.cached;
  if (run.end == RunEnd::captured) return point;
  point.failed = true;
  point.problem = run_problem(run);
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
    for (int round = 0; round < kMostRounds && look(wanted()); ++round) check_that_it_matters();
    for (int round = 0; round < kMostProofs && prove(); ++round) {
    }
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

  int64_t place_of(int64_t value) const {
    const auto at = std::ranges::upper_bound(q_.values, value);
    return std::max<int64_t>(at - q_.values.begin() - 1, 0);
  }

  // Places to look at, by group.
  std::map<Group*, std::set<int64_t>> wanted() {
    std::map<Group*, std::set<int64_t>> out;
    const int64_t start = place_of(q_.vary.now.value_or(kUsualStart));
    for (Target& target : targets_) {
      if (!group_of(target.card).problem.empty()) continue;
      // The lower answer is looked for when the other one is known: most of its places are.
      if (target.at_confidence && !next_of(targets_[2 * target.card], start).empty()) continue;
      const std::vector<int64_t> places = next_of(target, start);
      target.asked = !places.empty();
      out[&group_of(target.card)].insert(places.begin(), places.end());
    }
    return out;
  }

  std::vector<int64_t> next_of(const Target& target, int64_t start) const {
    return next_places(target.seen, static_cast<int64_t>(q_.values.size()), start, target.stuck);
  }

  // False: there was nothing to look at.
  bool look(const std::map<Group*, std::set<int64_t>>& places) {
    std::vector<RunSpec> specs;
    std::vector<std::pair<Group*, int64_t>> asked;
    for (const auto& [group, of_group] : places) {
      for (const int64_t place : of_group) {
        RunSpec spec = q_.with(q_.spec, q_.values[static_cast<size_t>(place)]);
        spec.gpu = q_.cards[group->cards.front()].id;
        specs.push_back(std::move(spec));
        asked.emplace_back(group, place);
      }
    }
    if (specs.empty()) return false;
    const std::vector<Run> done = runs_->run(specs);
    for (size_t i = 0; i < done.size(); ++i) take(done[i], asked[i].first, asked[i].second);
    narrow();
    return true;
  }

  // Runs each card's answer and the next value under the card's limit: PyTorch's own allocator decides. On a full card libraries take less
  // memory for their workspaces, and tensors find other places, so an answer may move. False: nothing is left to prove.
  bool prove() {
    std::vector<RunSpec> specs;
    std::vector<std::pair<Target*, int64_t>> asked;
    std::map<Group*, std::set<int64_t>> places;
    for (size_t i = 0; i < targets_.size(); i += 2) {
      Target& target = targets_[i];
      for (const int64_t place : unproved(target)) {
        if (!target.seen.contains(place)) places[&group_of(target.card)].insert(place);
        RunSpec spec = q_.with(q_.spec, q_.values[static_cast<size_t>(place)]);
        spec.gpu = q_.cards[target.card].id;
        spec.enforce_capacity = true;
        specs.push_back(std::move(spec));
        asked.emplace_back(&target, place);
      }
    }
    if (specs.empty()) return false;
    (void)look(places);
    const std::vector<Run> done = runs_->run(specs);
    for (size_t i = 0; i < done.size(); ++i) take_proof(done[i], asked[i].first, asked[i].second);
    return true;
  }

  // The answer's place and the next one, if they are not proved yet; where an answer has moved, a place on the way to the new one.
  std::vector<int64_t> unproved(const Target& target) const {
    const auto [ok, bad] = bracket(target.seen);
    std::vector<int64_t> out;
    if (!ok) return out;
    const auto last = static_cast<int64_t>(q_.values.size()) - 1;
    if (!bad && *ok < last) return {std::min(*ok + (int64_t{1} << target.proved.size()), last)};
    if (bad && *bad > *ok + 1) return {*ok + (*bad - *ok) / 2};
    const bool is_limit = bad && target.seen.at(*bad).over.has_value();  // not a script that fails
    if (!target.proved.contains(*ok)) out.push_back(*ok);
    if (is_limit && !target.proved.contains(*bad)) out.push_back(*bad);
    return out;
  }

  void take_proof(const Run& run, Target* target, int64_t place) {
    ++run_count_;
    cached_count_ += run.cached ? 1 : 0;
    target->proved.insert(place);
    if (run.end == RunEnd::failed) return;  // not about memory: the replay's answer stays
    const bool ran = run.end == RunEnd::captured;
    target->seen[place].ok = ran;
    Group& group = group_of(target->card);
    FitPoint& point = group.points[place][group.place_in(target->card)];
    point.runs = ran;
    point.runs_99 = point.runs_99 && ran;
    targets_[2 * target->card + 1].seen[place].ok = point.runs_99;
  }

  void take(const Run& run, Group* group, int64_t place) {
    ++run_count_;
    cached_count_ += run.cached ? 1 : 0;
    if (run.problem) last_problem_ = run;
    std::vector<std::shared_ptr<const Facts>> ranks;
    if (run.end == RunEnd::captured) ranks = facts_of(run);
    if (q_.vary.kind == VaryKind::loader && !ranks.empty())
      has_no_loader_ = std::ranges::none_of(ranks.front()->trace.header.what_if, &WhatIf::acted);
    for (const size_t card : group->cards) {
      FitPoint point = point_of(run, q_.values[static_cast<size_t>(place)], q_.vary);
      if (!ranks.empty()) {
        judge_point(ranks, q_.cards[card], q_.confidence, &point);
        time_point(ranks, q_.cards[card], &point);
      }
      const auto limit = static_cast<double>(q_.cards[card].total_memory_bytes);
      const double margin = static_cast<double>(point.request_bytes - point.expected_bytes);
      const auto over = [&](double more) {
        return point.failed ? std::optional<double>() : static_cast<double>(point.need_bytes) + more - limit;
      };
      targets_[2 * card].seen[place] = {point.runs, over(0)};
      targets_[2 * card + 1].seen[place] = {point.runs_99, over(margin)};
      group->points[place].push_back(std::move(point));
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
      const FitPoint &first = group.points.begin()->second.front(), &last = group.points.rbegin()->second.front();
      if (std::ranges::all_of(group.points, [](const auto& at) { return at.second.front().failed; })) {
        group.problem = first.problem;
        continue;
      }
      any_runs = true;
      const auto is_as_the_first = [&](const auto& at) {
        const FitPoint& point = at.second.front();
        return !point.failed && point.need_bytes == first.need_bytes && point.peak_allocated_bytes == first.peak_allocated_bytes;
      };
      // A small model's first two values may differ by less than its optimizer needs.
      if ((group.points.size() > 2 || has_no_loader_) && std::ranges::all_of(group.points, is_as_the_first)) {
        if (has_no_loader_)
          throw Error(
              "no batch was found: no option with a usual name in the command or in the script, and no DataLoader with a batch_size",
              last.run,
              "name what sets it, e.g. --vary batch=--my-batch:1..512 or batch=config.yaml:my_batch; where it is a number in the "
              "source, make it an option");
        throw Error(fmt::format("the script takes the same memory with {} and with {}: {}", first.setting, last.setting,
                                format_bytes(first.peak_reserved_bytes)),
                    last.run, "it may ignore this setting; name another, e.g. --vary batch=--batch-size:1..512");
      }
    }
    if (!any_runs) fail();
  }

  [[noreturn]] void fail() const {
    throw Error("the script does not run: " + run_problem(last_problem_), run_line(last_problem_.spec),
                "run this line to see more; --vary names what to vary");
  }

  FitAnswer answer(size_t card) {
    Group& group = group_of(card);
    FitAnswer out;
    out.gpu_id = q_.cards[card].id;
    out.gpu_name = q_.cards[card].name;
    out.capacity_bytes = q_.cards[card].total_memory_bytes;
    std::map<int64_t, size_t> index;
    for (const auto& [place, of_cards] : group.points) {
      index[place] = out.points.size();
      out.points.push_back(of_cards[group.place_in(card)]);
    }
    const auto [ok, bad] = bracket(targets_[2 * card].seen);
    const auto ok_99 = bracket(targets_[2 * card + 1].seen).ok;
    if (ok) out.largest = index[*ok];
    if (ok_99) out.largest_99 = index[*ok_99];
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
      if (answer.largest && answer.next && answer.points[*answer.next].failed)
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

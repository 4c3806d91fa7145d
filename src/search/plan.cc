#include "src/search/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "gpucast/error.h"
#include "src/base/to_number.h"

namespace gpucast::search {
namespace {

constexpr size_t kProven = 3;          // of the best plans are captured on their own number of cards
constexpr double kSameMemory = 0.01;   // peaks that differ by less are the same
constexpr size_t kFailuresToStop = 4;  // splits that are tried at first: if all fail alike, all will
constexpr double kMillion = 1e6;

// The choices that differ in the number of cards only (and in the data parallel size, which follows from it).
struct Split {
  std::vector<PlanChoice> choices;  // few cards first
  size_t next = 0;                  // the first that is not known
  int64_t last_peak_bytes = 0;      // of the last one that did not fit
  std::optional<size_t> smaller;    // the split with the next smaller micro batch
  bool failed = false;              // at least once
  int64_t fewest_that_fit = 0;      // cards; 0: none known yet
  [[nodiscard]] bool done() const { return next == choices.size(); }
};

class PlanFinder {
 public:
  PlanFinder(const PlanSpace& space, const std::vector<PlanChoice>& choices, const PlanGoal& goal, PlanSource* source)
      : space_(space), goal_(goal), source_(*source) {
    make_splits(choices);
  }

  PlanSearch run() {
    while (ask_next()) {
    }
    if (!any_ran_ && !out_.plans.empty()) stop();
    for (size_t round = 0; round < kProven && prove_best(); ++round) {
    }
    finish();
    return std::move(out_);
  }

 private:
  // What is the same in all choices of a split, with or without the micro batch.
  [[nodiscard]] std::vector<std::string> key_of(const PlanChoice& choice, bool with_micro_batch) const {
    std::vector<std::string> out;
    for (size_t i = 0; i < space_.parameters.size(); ++i) {
      const PlanRole role = space_.parameters[i].role;
      if (role != PlanRole::data && (role != PlanRole::micro_batch || with_micro_batch)) out.push_back(choice.values[i]);
    }
    return out;
  }

  void make_splits(const std::vector<PlanChoice>& choices) {
    std::map<std::vector<std::string>, size_t> places;
    for (const PlanChoice& choice : choices) {
      const auto [found, is_new] = places.try_emplace(key_of(choice, true), splits_.size());
      if (is_new) splits_.emplace_back();
      splits_[found->second].choices.push_back(choice);
    }
    std::map<std::vector<std::string>, std::vector<size_t>> chains;
    for (size_t i = 0; i < splits_.size(); ++i) chains[key_of(splits_[i].choices.front(), false)].push_back(i);
    for (auto& [key, chain] : chains) {
      std::ranges::stable_sort(chain, {}, [&](size_t i) { return size_of(space_, splits_[i].choices.front(), PlanRole::micro_batch); });
      for (size_t i = 1; i < chain.size(); ++i) splits_[chain[i]].smaller = chain[i - 1];
    }
  }

  void add(const PlanChoice& choice, const PlanFigures& figures, int64_t captured_gpus) {
    const auto same = std::ranges::find_if(
        out_.plans, [&](const Plan& plan) { return plan.choice.gpus == choice.gpus && plan.choice.values == choice.values; });
    Plan& plan = same == out_.plans.end() ? out_.plans.emplace_back() : *same;
    plan.choice = choice;
    plan.figures = figures;
    plan.captured_gpus = captured_gpus;
  }

  void add_without_run(const PlanChoice& choice, const std::string& why) {
    PlanFigures figures;
    figures.verdict = Verdict::does_not_fit;
    figures.problem = why;
    add(choice, figures, 0);
  }

  // Where the smaller micro batch does not fit, this one does not, either. False: the smaller one is not known yet.
  bool leave_out_by_micro_batch(Split* split) {
    if (!split->smaller) return true;
    const Split& smaller = splits_[*split->smaller];
    if (!smaller.done()) return false;
    while (!smaller.failed && !split->done() &&
           (smaller.fewest_that_fit == 0 || split->choices[split->next].gpus < smaller.fewest_that_fit))
      add_without_run(split->choices[split->next++], "a smaller micro batch does not fit");
    return true;
  }

  // False: all is known.
  bool ask_next() {
    std::vector<PlanRequest> requests;
    std::vector<size_t> asked;
    for (size_t i = 0; i < splits_.size(); ++i) {
      if (!leave_out_by_micro_batch(&splits_[i]) || splits_[i].done()) continue;
      requests.push_back(request_of(splits_[i]));
      asked.push_back(i);
      if (!any_ran_ && requests.size() == kFailuresToStop) break;
    }
    if (requests.empty()) return std::ranges::any_of(splits_, [](const Split& split) { return !split.done(); });
    const std::vector<PlanAnswer> answers = ask(requests);
    for (size_t i = 0; i < asked.size(); ++i) take(answers[i], requests[i], &splits_[asked[i]]);
    if (!any_ran_ && fail_alike(answers)) stop();
    return true;
  }

  [[nodiscard]] PlanRequest request_of(const Split& split) const {
    PlanRequest out{split.choices[split.next], {}};
    if (rescales_.value_or(true))
      for (size_t i = split.next + 1; i < split.choices.size(); ++i) out.also.push_back(split.choices[i].gpus);
    return out;
  }

  std::vector<PlanAnswer> ask(const std::vector<PlanRequest>& requests) {
    out_.runs += static_cast<int64_t>(requests.size());
    return source_.ask(requests);
  }

  void take(const PlanAnswer& answer, const PlanRequest& request, Split* split) {
    add(request.choice, answer.figures, request.choice.gpus);
    ++split->next;
    if (answer.figures.failed) {
      split->failed = true;
      return;
    }
    any_ran_ = true;
    if (answer.figures.verdict == Verdict::does_not_fit) {
      leave_out_more_cards(answer, split);
      return;
    }
    if (split->fewest_that_fit == 0) split->fewest_that_fit = request.choice.gpus;
    if (!rescales_ && !split->done()) probe(answer, *split);
    if (rescales_.value_or(false)) take_derived(answer, request, split);
  }

  [[nodiscard]] static bool fail_alike(const std::vector<PlanAnswer>& answers) {
    return std::ranges::all_of(answers,
                               [&](const PlanAnswer& answer) { return answer.figures.problem == answers.front().figures.problem; });
  }

  // If a rank needs the same memory on more cards, still more cards do not help.
  void leave_out_more_cards(const PlanAnswer& answer, Split* split) {
    const int64_t peak_bytes = answer.figures.peak_reserved_bytes, last_bytes = split->last_peak_bytes;
    split->last_peak_bytes = peak_bytes;
    if (peak_bytes <= 0 || last_bytes <= 0 || static_cast<double>(last_bytes - peak_bytes) > kSameMemory * static_cast<double>(peak_bytes))
      return;
    while (!split->done()) add_without_run(split->choices[split->next++], "more cards do not lower a rank's memory");
  }

  // Asks for the same split on the most cards: does a replica do the same there?
  void probe(const PlanAnswer& few, const Split& split) {
    const PlanChoice& most = split.choices.back();
    const PlanAnswer many = ask({{most, {}}}).front();
    add(most, many.figures, most.gpus);
    if (many.figures.failed) return;
    rescales_ = many.samples_of_replica == few.samples_of_replica && many.tokens_of_replica == few.tokens_of_replica &&
                std::abs(many.flops_of_rank - few.flops_of_rank) <= kSameMemory * few.flops_of_rank;
    out_.sharded = *rescales_ && static_cast<double>(few.figures.peak_reserved_bytes - many.figures.peak_reserved_bytes) >
                                     kSameMemory * static_cast<double>(few.figures.peak_reserved_bytes);
  }

  void take_derived(const PlanAnswer& answer, const PlanRequest& request, Split* split) {
    for (size_t i = 0; i < answer.also.size() && !split->done(); ++i) {
      if (!answer.also[i]) return;  // this capture has one replica: the next one is captured
      const PlanChoice& choice = split->choices[split->next];
      const bool captured = std::ranges::any_of(
          out_.plans, [&](const Plan& plan) { return plan.choice.gpus == choice.gpus && plan.choice.values == choice.values; });
      if (!captured) add(choice, *answer.also[i], request.choice.gpus);
      ++split->next;
    }
  }

  [[noreturn]] void stop() const {
    const Plan& first = out_.plans.front();
    throw Error(fmt::format("the script fails with every plan that was tried, first with {}: {}", plan_words(space_, first.choice),
                            first.figures.problem),
                first.figures.runs.empty() ? "" : first.figures.runs.front(), "run this line: it prints all that the script says");
  }

  // Captures the best plans that are only derived. False: there are none.
  bool prove_best() {
    rank();
    std::vector<PlanRequest> requests;
    for (size_t i = 0; i < std::min(kProven, out_.plans.size()); ++i) {
      const Plan& plan = out_.plans[i];
      if (fits(plan) && plan.captured_gpus != plan.choice.gpus) requests.push_back({plan.choice, {}});
    }
    if (requests.empty()) return false;
    const std::vector<PlanAnswer> answers = ask(requests);
    for (size_t i = 0; i < requests.size(); ++i) add(requests[i].choice, answers[i].figures, requests[i].choice.gpus);
    return true;
  }

  static bool fits(const Plan& plan) { return !plan.figures.failed && fits_now(plan.figures.verdict); }
  static bool is_timed(const Plan& plan) { return fits(plan) && plan.figures.step.expected_ns > 0; }

  void add_costs(Plan* plan) const {
    const double amount = static_cast<double>(out_.by_tokens ? plan->figures.tokens : plan->figures.samples);
    plan->throughput = is_timed(*plan) ? amount / plan->figures.step.expected_ns * 1e9 : 0;
    plan->price_per_hour = goal_.price_per_hour ? goal_.price_per_hour(plan->choice.gpus) : 0;
    plan->ns = plan->throughput > 0 ? (goal_.tokens > 0 ? goal_.tokens : kMillion) / plan->throughput * 1e9 : 0;
    plan->cost = plan->ns / 3600e9 * plan->price_per_hour;
    plan->in_time = goal_.deadline_ns <= 0 || (plan->ns > 0 && plan->ns <= goal_.deadline_ns);
  }

  // Better plans first.
  [[nodiscard]] bool is_better(const Plan& a, const Plan& b) const {
    const auto place = [](const Plan& plan) {
      return plan.figures.failed ? 4 : !fits(plan) ? 3 : !is_timed(plan) ? 2 : plan.figures.verdict == Verdict::tight ? 1 : 0;
    };
    if (place(a) != place(b)) return place(a) < place(b);
    if (place(a) > 1) return a.choice.gpus < b.choice.gpus;
    if (a.in_time != b.in_time) return a.in_time;
    if (a.in_time && goal_.price_per_hour && a.cost != b.cost) return a.cost < b.cost;
    if (a.in_time && goal_.deadline_ns > 0 && a.choice.gpus != b.choice.gpus) return a.choice.gpus < b.choice.gpus;
    if (a.throughput != b.throughput) return a.throughput > b.throughput;
    if (a.figures.step.expected_ns != b.figures.step.expected_ns) return a.figures.step.expected_ns < b.figures.step.expected_ns;
    return a.choice.gpus < b.choice.gpus;
  }

  void rank() {
    out_.by_tokens = std::ranges::any_of(out_.plans, [](const Plan& plan) { return plan.figures.tokens > 0; });
    for (Plan& plan : out_.plans) add_costs(&plan);
    std::ranges::stable_sort(out_.plans, [&](const Plan& a, const Plan& b) { return is_better(a, b); });
  }

  void finish() {
    rank();
    out_.rescaled = std::ranges::any_of(out_.plans, [](const Plan& plan) { return fits(plan) && plan.captured_gpus != plan.choice.gpus; });
    std::map<int64_t, size_t> fastest;
    for (size_t i = 0; i < out_.plans.size(); ++i) {
      const Plan& plan = out_.plans[i];
      if (plan.throughput <= 0) continue;
      const auto [found, is_new] = fastest.try_emplace(plan.choice.gpus, i);
      if (!is_new && plan.throughput > out_.plans[found->second].throughput) found->second = i;
    }
    for (const auto& [gpus, place] : fastest) {
      PlanScale row{gpus, place, 1};
      if (!out_.scale.empty()) {
        const PlanScale &first = out_.scale.front(), &before = out_.scale.back();
        const double of_first = out_.plans[first.plan].throughput / static_cast<double>(first.gpus);
        row.of_more_cards =
            (out_.plans[place].throughput - out_.plans[before.plan].throughput) / static_cast<double>(gpus - before.gpus) / of_first;
      }
      out_.scale.push_back(row);
    }
  }

  const PlanSpace& space_;
  const PlanGoal& goal_;
  PlanSource& source_;
  std::vector<Split> splits_;
  std::optional<bool> rescales_;  // captures can be derived for more cards; unset: not known yet
  bool any_ran_ = false;
  PlanSearch out_;
};

}  // namespace

PlanSearch find_plans(const PlanSpace& space, const std::vector<PlanChoice>& choices, const PlanGoal& goal, PlanSource* source) {
  return PlanFinder(space, choices, goal, source).run();
}

std::string plan_words(const PlanSpace& space, const PlanChoice& choice) {
  std::string out = fmt::format("{} card{}", choice.gpus, choice.gpus == 1 ? "" : "s");
  for (size_t i = 0; i < space.parameters.size(); ++i) out += fmt::format(", {} {}", space.parameters[i].name, choice.values[i]);
  return out;
}

}  // namespace gpucast::search

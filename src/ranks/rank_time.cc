#include "src/ranks/rank_time.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

namespace gpucast {
namespace {

constexpr size_t kStepEnd = std::numeric_limits<size_t>::max();

// What the card does from here on, until the next moment.
enum class State : uint8_t { computes, stalls, idles };
struct Moment {
  double ns = 0;
  State state = State::idles;
};

// What one operation of communication does from here on.
struct Change {
  double ns = 0;
  size_t operation = 0;
  enum class To : uint8_t { waits, moves, ends } to = To::waits;
};

class StepDivision {
 public:
  StepDivision(const StepPlayer& player, const std::vector<CollectiveUse>& uses, double zero_ns, RankTime* out)
      : player_(player), step_(player.step()), uses_(uses), zero_ns_(zero_ns), out_(*out) {}

  void divide() {
    find_states();
    find_changes();
    size_t state = 0, change = 0;
    double now = out_.begin_ns;
    while (now < out_.end_ns) {
      for (; change < changes_.size() && changes_[change].ns <= now; ++change) follow(changes_[change]);
      while (state + 1 < states_.size() && states_[state + 1].ns <= now) ++state;
      double next = out_.end_ns;
      if (change < changes_.size()) next = std::min(next, changes_[change].ns);
      if (state + 1 < states_.size()) next = std::min(next, states_[state + 1].ns);
      add(states_[state].state, next - now);
      now = next;
    }
    for (auto& [key, time] : times_) out_.communication.push_back(time);
    for (const CommunicationTime& time : out_.communication) {
      out_.exposed_ns += time.exposed_ns;
      out_.waiting_ns += time.waiting_ns;
      out_.hidden_ns += time.hidden_ns;
    }
  }

 private:
  bool communicates(size_t operation) const { return step_.shapes[step_.operations[operation].shape].kind == OperationKind::collective; }

  // The card computes, and in the gaps between it waits for communication or for the host: for what the operation waited that ends the gap.
  void find_states() {
    std::vector<size_t> order;
    for (size_t i = 0; i < step_.operations.size(); ++i) {
      if (!communicates(i) && out_.spans[i].end_ns > out_.begin_ns && out_.spans[i].end_ns > out_.spans[i].start_ns) order.push_back(i);
    }
    std::ranges::sort(order, {}, [this](size_t i) { return out_.spans[i].start_ns; });
    double busy_until = out_.begin_ns;
    for (const size_t i : order) {
      const OperationSpan& span = out_.spans[i];
      if (span.start_ns > busy_until) add_gap(busy_until, span.start_ns, i);
      if (states_.empty() || states_.back().state != State::computes)
        states_.push_back({std::max(busy_until, span.start_ns), State::computes});
      busy_until = std::max(busy_until, span.end_ns);
    }
    if (busy_until < out_.end_ns) add_gap(busy_until, out_.end_ns, kStepEnd);
  }

  void add_gap(double from_ns, double to_ns, size_t operation) {
    const bool at_end = operation == kStepEnd;
    const double ready_ns = at_end ? player_.host_end_ns() : player_.asked(operation).ready_ns;
    const double freed_ns = (at_end ? player_.freed_ns() : player_.asked(operation).freed_ns) - zero_ns_;
    const bool host_is_late = ready_ns - zero_ns_ >= to_ns - kSameNs;
    const double idle_from_ns = host_is_late ? std::clamp(freed_ns, from_ns, to_ns) : to_ns;
    if (idle_from_ns > from_ns) states_.push_back({from_ns, State::stalls});
    if (idle_from_ns < to_ns) states_.push_back({idle_from_ns, State::idles});
  }

  void find_changes() {
    for (size_t i = 0; i < step_.operations.size(); ++i) {
      if (!communicates(i)) continue;
      const OperationSpan& span = out_.spans[i];
      if (span.moves_ns > span.start_ns) changes_.push_back({span.start_ns, i, Change::To::waits});
      if (span.end_ns > span.moves_ns) changes_.push_back({span.moves_ns, i, Change::To::moves});
      changes_.push_back({span.end_ns, i, Change::To::ends});
    }
    std::ranges::stable_sort(changes_, {}, &Change::ns);
  }

  void follow(const Change& change) {
    std::erase(waiting_, change.operation);
    std::erase(moving_, change.operation);
    if (change.to == Change::To::waits) waiting_.push_back(change.operation);
    if (change.to == Change::To::moves) moving_.push_back(change.operation);
  }

  bool stops_others(size_t operation) const { return !uses_.empty() && uses_[step_.operations[operation].shape].moving >= 1; }

  void add(State state, double ns) {
    if (state == State::computes && std::ranges::any_of(moving_, [this](size_t i) { return stops_others(i); })) state = State::stalls;
    if (state == State::stalls && moving_.empty() && waiting_.empty()) state = State::idles;
    if (state == State::computes) out_.compute_ns += ns;
    if (state == State::idles) out_.idle_ns += ns;
    if (state == State::stalls && moving_.empty()) {
      for (const size_t i : waiting_) time_of(i).waiting_ns += ns / static_cast<double>(waiting_.size());
    }
    for (const size_t i : moving_) {
      if (state == State::stalls) {
        time_of(i).exposed_ns += ns / static_cast<double>(moving_.size());
      } else {
        time_of(i).hidden_ns += ns;
      }
    }
  }

  CommunicationTime& time_of(size_t operation) {
    const StepOperation& asked = step_.operations[operation];
    const CollectiveKind kind = step_.shapes[asked.shape].collective.kind;
    const int32_t group =
        asked.communication < 0 ? -1 : static_cast<int32_t>(step_.communications[static_cast<size_t>(asked.communication)].group);
    CommunicationTime& out = times_[{group, kind}];
    out.group = group;
    out.kind = kind;
    return out;
  }

  const StepPlayer& player_;
  const StepOperations& step_;
  const std::vector<CollectiveUse>& uses_;
  const double zero_ns_;
  RankTime& out_;
  std::vector<Moment> states_;
  std::vector<Change> changes_;
  std::vector<size_t> waiting_, moving_;  // operations
  std::map<std::pair<int32_t, CollectiveKind>, CommunicationTime> times_;
};

}  // namespace

void divide_step(const StepPlayer& player, const std::vector<CollectiveUse>& uses, double zero_ns, RankTime* out) {
  StepDivision(player, uses, zero_ns, out).divide();
}

}  // namespace gpucast

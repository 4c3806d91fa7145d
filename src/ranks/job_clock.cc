#include "src/ranks/job_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "gpucast/error.h"
#include "src/ranks/shared_links.h"

namespace gpucast {
namespace {

class JobClock {
  static constexpr double kNever = GpuTimeline::kNever;
  static constexpr size_t kPasses = StepPlayer::kPasses;

 public:
  JobClock(const std::vector<PlayedRank>& ranks, const std::vector<std::vector<double>>& held, const Meetings& meetings,
           const StepConstants& constants, bool hosts_cost)
      : ranks_(ranks),
        meetings_(meetings),
        links_(meetings, ranks.size(), kPasses),
        arrived_(meetings.meetings.size() * kPasses),
        gates_(ranks.size()),
        next_ns_(ranks.size(), kNever) {
    out_.opened_ns.resize(meetings.meetings.size());
    out_.last.resize(meetings.meetings.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      const StepPlayer::Host host{.scale = ranks[r].host_scale, .costs = hosts_cost, .batch_ns = ranks[r].batch_ns};
      out_.players.push_back(std::make_unique<StepPlayer>(*ranks[r].step, ranks[r].durations, constants, host, &held[r]));
      gates_[r].resize(ranks[r].step->streams.size());
    }
  }

  PlayedJob play() {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      out_.players[r]->go_on();
      settle(r);
    }
    for (;;) {
      while (!opened_.empty()) open_next();
      drop_old_moments();
      const double rank_ns = moments_.empty() ? kNever : moments_.top().first, link_ns = links_.next_end_ns();
      if (rank_ns == kNever && link_ns == kNever) break;
      if (link_ns <= rank_ns) {
        end_meeting(link_ns);
      } else {
        const uint32_t r = moments_.top().second;
        moments_.pop();
        go_to(r, std::exchange(next_ns_[r], kNever));
        settle(r);
      }
    }
    check_done();
    return std::move(out_);
  }

 private:
  using Moment = std::pair<double, uint32_t>;  // ns, rank
  struct Opened {
    uint32_t meeting = 0;
    double now_ns = 0;
  };
  struct Gate {
    uint32_t operation = 0;
    size_t meetings = 0;  // that are not over
  };

  void drop_old_moments() {
    while (!moments_.empty() && moments_.top().first != next_ns_[moments_.top().second]) moments_.pop();
  }

  void go_to(uint32_t r, double ns) { out_.players[r]->gpu().go_to(ns); }

  // Everything that happens on a rank now, and the time at which the next thing will.
  void settle(uint32_t r) {
    StepPlayer& player = *out_.players[r];
    double next = player.gpu().next_ns();
    while (player.can_go_on()) {
      player.go_on();
      next = player.gpu().next_ns();
    }
    for (const GpuTimeline::Gate& gate : player.gpu().take_reached()) arrive(r, gate, player.gpu().now_ns());
    if (next == next_ns_[r]) return;
    next_ns_[r] = next;
    if (next != kNever) moments_.emplace(next, r);
  }

  void arrive(uint32_t r, const GpuTimeline::Gate& gate, double now_ns) {
    const size_t operations = ranks_[r].step->operations.size(), operation = gate.work % operations, pass = gate.work / operations;
    const auto parts = meetings_.of_operation(r, operation);
    gates_[r][gate.stream] = {static_cast<uint32_t>(operation),
                              static_cast<size_t>(std::ranges::count(parts, true, &Meetings::Part::waits))};
    for (const auto& [index, waits] : parts) {
      const auto number = static_cast<uint32_t>(pass * meetings_.meetings.size() + index);
      if (++arrived_[number] < meetings_.meetings[index].count) continue;
      links_.begin(number, now_ns);
      opened_.push_back({index, now_ns});
      if (pass + 1 < kPasses) continue;
      out_.opened_ns[index] = now_ns;
      out_.last[index] = attendance_of(index, r, static_cast<uint32_t>(operation));
    }
  }

  // The kernels of a meeting that has begun use memory.
  void open_next() {
    const auto [index, now_ns] = opened_.back();
    opened_.pop_back();
    for (const Attendance& attendance : meetings_.of(meetings_.meetings[index])) {
      const PlayedRank& rank = ranks_[attendance.rank];
      const StepOperation& operation = rank.step->operations[attendance.operation];
      if (!attendance.waits || rank.uses.empty()) continue;
      const CollectiveUse& use = rank.uses[operation.shape];
      go_to(attendance.rank, now_ns);
      out_.players[attendance.rank]->gpu().use_card(operation.stream, use.moving, use.memory);
      settle(attendance.rank);
    }
  }

  uint32_t attendance_of(uint32_t index, uint32_t r, uint32_t operation) const {
    uint32_t out = meetings_.meetings[index].first;
    while (meetings_.attendances[out].rank != r || meetings_.attendances[out].operation != operation) ++out;
    return out;
  }

  void end_meeting(double now_ns) {
    const uint32_t index = links_.end_next() % static_cast<uint32_t>(meetings_.meetings.size());
    for (const Attendance& attendance : meetings_.of(meetings_.meetings[index])) {
      if (!attendance.waits) continue;
      const uint32_t r = attendance.rank, stream = ranks_[r].step->operations[attendance.operation].stream;
      if (--gates_[r][stream].meetings > 0) continue;
      go_to(r, now_ns);
      out_.players[r]->gpu().end_gate(stream);
      settle(r);
    }
  }

  void check_done() const {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (out_.players[r]->done()) continue;
      throw Error(fmt::format("the ranks wait for each other forever: {}", waiting_ranks()), "one clock for all captures",
                  "start the communication of all groups in the same order on all ranks");
    }
  }

  std::string waiting_ranks() const {
    constexpr size_t kShown = 4;
    std::string out;
    size_t shown = 0;
    for (uint32_t r = 0; r < ranks_.size() && shown < kShown; ++r) {
      const auto gate = std::ranges::find_if(gates_[r], [](const Gate& one) { return one.meetings > 0; });
      if (gate == gates_[r].end()) continue;
      const StepOperations& step = *ranks_[r].step;
      const StepOperation& operation = step.operations[gate->operation];
      const Communication& communication = step.communications[static_cast<size_t>(operation.communication)];
      out += fmt::format("{}rank {} in {} of group \"{}\"", shown++ > 0 ? ", " : "", ranks_[r].rank,
                         collective_kind_name(step.shapes[operation.shape].collective.kind), step.groups[communication.group].name);
    }
    return out;
  }

  const std::vector<PlayedRank>& ranks_;
  const Meetings& meetings_;
  SharedLinks links_;
  std::vector<uint32_t> arrived_;                                             // by number of the meeting, as in SharedLinks
  std::vector<std::vector<Gate>> gates_;                                      // by rank and stream
  std::vector<double> next_ns_;                                               // by rank
  std::priority_queue<Moment, std::vector<Moment>, std::greater<>> moments_;  // also earlier ones, which differ from next_ns_
  std::vector<Opened> opened_;
  PlayedJob out_;
};

}  // namespace

PlayedJob play_job(const std::vector<PlayedRank>& ranks, const std::vector<std::vector<double>>& held, const Meetings& meetings,
                   const StepConstants& constants, bool hosts_cost) {
  return JobClock(ranks, held, meetings, constants, hosts_cost).play();
}

}  // namespace gpucast

#include "src/ranks/play.h"

#include <algorithm>

#include "src/ranks/critical_path.h"
#include "src/ranks/job_clock.h"
#include "src/ranks/meetings.h"
#include "src/ranks/rank_time.h"

namespace gpucast {
namespace {

std::vector<std::vector<double>> held_of(const std::vector<PlayedRank>& ranks) {
  std::vector<std::vector<double>> out;
  for (const PlayedRank& rank : ranks) {
    std::vector<double>& held = out.emplace_back(rank.step->shapes.size());
    for (size_t shape = 0; shape < rank.uses.size(); ++shape) held[shape] = rank.uses[shape].multiprocessors;
  }
  return out;
}

double job_begin_ns(const PlayedJob& job) {
  double out = 0;
  for (const auto& player : job.players) out = std::max(out, player->begin_ns());
  return out;
}

double job_end_ns(const PlayedJob& job) {
  double out = 0;
  for (const auto& player : job.players) out = std::max(out, player->end_ns());
  return out;
}

OperationSpan span_of(const PlayedJob& job, const Meetings& meetings, size_t r, size_t operation, double zero_ns) {
  const StepPlayer& player = *job.players[r];
  const GpuTimeline::Span& span = player.span(operation);
  OperationSpan out = {player.asked(operation).launched_ns - zero_ns, span.start_ns - zero_ns, span.start_ns - zero_ns,
                       span.end_ns - zero_ns};
  for (const auto& [index, waits] : meetings.of_operation(r, operation)) {
    const double opened_ns = job.opened_ns[index] - zero_ns;
    if (!waits || opened_ns <= out.moves_ns) continue;
    if (opened_ns > out.start_ns + kSameNs) out.last_rank = static_cast<int32_t>(meetings.attendances[job.last[index]].rank);
    out.moves_ns = opened_ns;
  }
  return out;
}

std::vector<PlayedMessage> messages_of(const Meetings& meetings) {
  std::vector<PlayedMessage> out;
  for (const Meeting& meeting : meetings.meetings) {
    const Attendance *from = nullptr, *to = nullptr;
    for (const Attendance& attendance : meetings.of(meeting)) {
      if (attendance.direction == Direction::out) from = &attendance;
      if (attendance.direction == Direction::in && attendance.waits) to = &attendance;
    }
    if (from != nullptr && to != nullptr) out.push_back({{from->rank, from->operation}, {to->rank, to->operation}});
  }
  return out;
}

RankTime rank_time(const PlayedRank& rank, const PlayedJob& job, const Meetings& meetings, size_t r, double zero_ns) {
  const StepPlayer& player = *job.players[r];
  RankTime out;
  out.rank = rank.rank;
  out.begin_ns = player.begin_ns() - zero_ns;
  out.end_ns = player.end_ns() - zero_ns;
  out.schedule.step_ns = out.end_ns - out.begin_ns;
  out.schedule.host_ns = static_cast<double>(rank.step->host_ns) * rank.host_scale + player.calls_ns();
  out.imagined_messages = meetings.imagined_messages[r];
  for (size_t i = 0; i < rank.step->operations.size(); ++i) out.spans.push_back(span_of(job, meetings, r, i, zero_ns));
  divide_step(player, rank.uses, zero_ns, &out);
  return out;
}

}  // namespace

double play_step_ns(const std::vector<PlayedRank>& ranks, const StepConstants& constants) {
  const Meetings meetings = find_meetings(ranks);
  const PlayedJob job = play_job(ranks, held_of(ranks), meetings, constants, true);
  return job_end_ns(job) - job_begin_ns(job);
}

JobTime play(const std::vector<PlayedRank>& ranks, const StepConstants& constants) {
  const Meetings meetings = find_meetings(ranks);
  const std::vector<std::vector<double>> held = held_of(ranks);
  JobTime out;
  const PlayedJob job = play_job(ranks, held, meetings, constants, true);
  const double zero_ns = job_begin_ns(job);
  out.step_ns = job_end_ns(job) - zero_ns;
  for (size_t r = 0; r < ranks.size(); ++r) out.ranks.push_back(rank_time(ranks[r], job, meetings, r, zero_ns));
  out.messages = messages_of(meetings);
  out.critical_path = find_critical_path(job, meetings, out.ranks, zero_ns);
  const PlayedJob at_once = play_job(ranks, held, meetings, constants, false);
  out.gpu_ns = job_end_ns(at_once) - job_begin_ns(at_once);
  for (size_t r = 0; r < ranks.size(); ++r) out.ranks[r].schedule.gpu_ns = at_once.players[r]->end_ns() - at_once.players[r]->begin_ns();
  return out;
}

}  // namespace gpucast

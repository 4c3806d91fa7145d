#include "src/job/more_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "gpucast/error.h"
#include "src/base/links.h"
#include "src/job/group_purpose.h"

namespace gpucast {
namespace {

// How replicas lie among the ranks: rank = (outer * replicas + replica) * stride + inner. Launchers and libraries number ranks like this.
struct Layout {
  int64_t replicas = 1, stride = 1;
  [[nodiscard]] int64_t replica(int64_t rank) const { return rank / stride % replicas; }
  // The rank with the same part of the model in the first replica.
  [[nodiscard]] int64_t in_first(int64_t rank) const { return rank - replica(rank) * stride; }
  [[nodiscard]] int64_t in_layout(int64_t rank, const Layout& other) const {
    return (rank / stride / replicas * other.replicas + replica(rank)) * stride + rank % stride;
  }
};

// The distance of the ranks of a group with this many. Unset: they are no regular series.
std::optional<int64_t> stride_of(const CommunicationGroup& group, int64_t ranks) {
  std::vector<int64_t> sorted = group.ranks;
  std::ranges::sort(sorted);
  if (static_cast<int64_t>(sorted.size()) != ranks || ranks < 2) return std::nullopt;
  const int64_t out = sorted[1] - sorted[0];
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i] - sorted[i - 1] != out) return std::nullopt;
  return out > 0 ? std::optional(out) : std::nullopt;
}

// Each group has the same ranks of every replica, or ranks of one replica alone. Messages stay in a replica, and groups that split a layer.
bool suits(const Layout& layout, const JobRanks& job) {
  for (const StepOperations& step : job.steps) {
    const GroupPurposes purposes(step);
    for (size_t i = 0; i < step.groups.size(); ++i) {
      const CommunicationGroup& group = step.groups[i];
      std::map<int64_t, std::set<int64_t>> members;  // by replica
      for (const int64_t rank : group.ranks) members[layout.replica(rank)].insert(layout.in_first(rank));
      if (members.size() == 1) continue;
      if (purposes.shares_samples(static_cast<uint32_t>(i)) || static_cast<int64_t>(members.size()) != layout.replicas) return false;
      for (const auto& [replica, ranks] : members)
        if (ranks != members.begin()->second) return false;
    }
    for (const Communication& communication : step.communications)
      for (const Message& message : communication.messages)
        if (layout.replica(message.peer) != layout.replica(step.rank)) return false;
  }
  return true;
}

Layout layout_of(const JobRanks& job) {
  std::set<int64_t> strides;
  for (const StepOperations& step : job.steps)
    for (const CommunicationGroup& group : step.groups)
      if (const auto stride = stride_of(group, job.replicas)) strides.insert(*stride);
  for (const int64_t stride : strides)
    if (suits({job.replicas, stride}, job)) return {job.replicas, stride};
  throw Error(job.replicas < 2 ? "the captured job has one replica of its model, so it does not say what more replicas would exchange"
                               : "the groups of the captured job do not say which ranks more replicas would have",
              "--scale of captures", "capture a job with two replicas or more, or give the command: --scale N,M -- COMMAND");
}

void renumber(const Layout& from, const Layout& to, StepOperations* step) {
  step->rank = from.in_layout(step->rank, to);
  for (CommunicationGroup& group : step->groups) {
    std::set<int64_t> replicas, ranks;
    for (const int64_t rank : group.ranks) replicas.insert(from.replica(rank));
    for (const int64_t rank : group.ranks) {
      const int64_t first = from.in_layout(from.in_first(rank), to);
      if (replicas.size() == 1) ranks.insert(from.in_layout(rank, to));
      if (replicas.size() > 1)
        for (int64_t replica = 0; replica < to.replicas; ++replica) ranks.insert(first + replica * to.stride);
    }
    group.ranks.assign(ranks.begin(), ranks.end());
  }
  for (Communication& communication : step->communications)
    for (Message& message : communication.messages) message.peer = from.in_layout(message.peer, to);
}

void leave_out_later_replicas(const Layout& layout, int64_t replicas, JobRanks* job) {
  JobRanks kept;
  for (size_t i = 0; i < job->steps.size(); ++i) {
    if (layout.replica(job->steps[i].rank) >= replicas) continue;
    kept.steps.push_back(std::move(job->steps[i]));
    kept.roles.push_back(job->roles[i]);
  }
  if (kept.steps.empty())
    throw Error(fmt::format("all captured ranks are of later replicas than the first {}", replicas), "--scale of captures",
                "give the captures of the first replica");
  *job = std::move(kept);
}

}  // namespace

void set_replicas(int64_t ranks, JobRanks* job) {
  const int64_t before = job->steps.front().ranks, of_replica = before / job->replicas;
  if (ranks == before) return;
  if (ranks % of_replica != 0)
    throw Error(fmt::format("a replica of the model has {} ranks, and {} is no multiple of that", of_replica, ranks), "--scale of captures",
                fmt::format("such as --scale {},{}", before, 2 * before));
  const Layout from = layout_of(*job), to = {ranks / of_replica, from.stride};
  leave_out_later_replicas(from, to.replicas, job);
  for (StepOperations& step : job->steps) {
    renumber(from, to, &step);
    if (step.node_ranks >= before) step.node_ranks = kUsualNodeCards;
    step.ranks = ranks;
  }
  job->replicas = to.replicas;
}

}  // namespace gpucast

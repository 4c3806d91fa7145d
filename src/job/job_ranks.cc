#include "src/job/job_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "gpucast/error.h"
#include "src/job/group_purpose.h"
#include "src/schedule/step_schedule.h"

namespace gpucast {
namespace {

// Sets of ranks that work together.
class RankSets {
 public:
  explicit RankSets(int64_t ranks) : parent_(static_cast<size_t>(ranks)) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }

  // Ranks that share the work of one sample, by the purposes of their groups.
  void join_shards(const StepOperations& step) {
    const GroupPurposes purposes(step);
    for (uint32_t group = 0; group < step.groups.size(); ++group) {
      if (!purposes.shares_samples(group)) continue;
      for (const int64_t rank : step.groups[group].ranks) join(step.rank, rank);
    }
  }
  // Ranks that send each other messages, other than tokens for experts.
  void join_stages(const StepOperations& step) {
    for (const Communication& communication : step.communications)
      for (const Message& message : communication.messages)
        if (!message.routed) join(step.rank, message.peer);
  }
  // Ranks with the same part of the model: groups with at most one rank of each replica.
  void join_copies(const StepOperations& step, RankSets* replicas) {
    for (const CommunicationGroup& group : step.groups) {
      std::set<size_t> known;
      const auto of_new_replica = [&](int64_t rank) {
        return is_known(rank) && known.insert(replicas->root(static_cast<size_t>(rank))).second;
      };
      if (!std::ranges::all_of(group.ranks, of_new_replica)) continue;
      for (const int64_t rank : group.ranks) join(step.rank, rank);
    }
  }

  bool are_together(int64_t a, int64_t b) { return root(static_cast<size_t>(a)) == root(static_cast<size_t>(b)); }
  int64_t size_with(int64_t rank) {
    int64_t out = 0;
    for (size_t other = 0; other < parent_.size(); ++other) out += root(other) == root(static_cast<size_t>(rank));
    return out;
  }

 private:
  bool is_known(int64_t rank) const { return rank >= 0 && rank < static_cast<int64_t>(parent_.size()); }
  size_t root(size_t rank) {
    while (parent_[rank] != rank) rank = parent_[rank] = parent_[parent_[rank]];
    return rank;
  }
  void join(int64_t a, int64_t b) {
    if (!is_known(a) || !is_known(b)) return;
    parent_[root(static_cast<size_t>(a))] = root(static_cast<size_t>(b));
  }

  std::vector<size_t> parent_;
};

bool is_same_program(const StepOperations& a, const StepOperations& b) {
  const auto same_operation = [&](const StepOperation& x, const StepOperation& y) {
    return x.name == y.name && x.kernel == y.kernel && x.stream == y.stream;
  };
  const auto same_order = [](const StepOrder& x, const StepOrder& y) {
    return x.kind == y.kind && x.operations_before == y.operations_before && x.stream == y.stream;
  };
  return std::ranges::equal(a.operations, b.operations, same_operation) && std::ranges::equal(a.order, b.order, same_order) &&
         a.batches.size() == b.batches.size();
}

bool has_same_shapes(const StepOperations& a, const StepOperations& b) {
  return std::ranges::equal(a.operations, b.operations,
                            [&](const StepOperation& x, const StepOperation& y) { return a.shapes[x.shape] == b.shapes[y.shape]; });
}

void copy_host_times(const StepOperations& from, StepOperations* to) {
  for (size_t i = 0; i < from.operations.size(); ++i) to->operations[i].asked_ns = from.operations[i].asked_ns;
  for (size_t i = 0; i < from.order.size(); ++i) to->order[i].asked_ns = from.order[i].asked_ns;
  for (size_t i = 0; i < from.batches.size(); ++i) to->batches[i] = from.batches[i];
  to->host_ns = from.host_ns;
  to->host = from.host;
}

// The part of the operations of the longer program that the other has, too, in any order.
double common_part(const StepOperations& a, const StepOperations& b) {
  std::map<std::pair<std::string_view, std::string_view>, int64_t> left;
  for (const StepOperation& operation : a.operations) ++left[{operation.name, operation.kernel}];
  size_t common = 0;
  for (const StepOperation& operation : b.operations) {
    const auto found = left.find({operation.name, operation.kernel});
    if (found != left.end() && found->second-- > 0) ++common;
  }
  return static_cast<double>(common) / static_cast<double>(std::max<size_t>(1, std::max(a.operations.size(), b.operations.size())));
}

constexpr double kAlmostAll = 0.9;

// Ranks that run the same program need the same time of their hosts. Here they disturb each other, and a disturbance only makes a step
// longer: the fastest one's times are right for all. Where programs differ by little (an empty shard, a progress bar), each operation needs
// the same time.
void use_fastest_hosts(std::vector<StepOperations>* steps, const StepConstants& constants) {
  const auto host_ns = [&](const StepOperations& step) { return static_cast<double>(step.host_ns) * host_scale(step.host, constants); };
  const auto pace_ns = [&](const StepOperations& step) {
    return host_ns(step) / static_cast<double>(std::max<size_t>(1, step.operations.size()));
  };
  std::vector<size_t> order(steps->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return host_ns((*steps)[i]); });
  std::vector<size_t> programs;  // the fastest rank of each
  std::vector<size_t> program_of(steps->size());
  for (const size_t i : order) {
    const auto found = std::ranges::find_if(programs, [&](size_t fastest) { return is_same_program((*steps)[fastest], (*steps)[i]); });
    program_of[i] = static_cast<size_t>(found - programs.begin());
    if (found == programs.end()) {
      programs.push_back(i);
    } else {
      copy_host_times((*steps)[*found], &(*steps)[i]);
    }
  }
  std::vector<double> factors(programs.size(), 1);
  for (size_t p = 0; p < programs.size(); ++p) {
    const StepOperations& own = (*steps)[programs[p]];
    for (const size_t other : programs) {
      const double faster = pace_ns((*steps)[other]) / pace_ns(own);
      if (faster < factors[p] && common_part(own, (*steps)[other]) >= kAlmostAll) factors[p] = faster;
    }
  }
  for (size_t i = 0; i < steps->size(); ++i) (*steps)[i].host.pace = factors[program_of[i]];
}

void check_one_job(const std::vector<StepOperations>& steps) {
  std::set<int64_t> ranks;
  for (const StepOperations& step : steps) {
    if (step.ranks != steps.front().ranks)
      throw Error(fmt::format("one capture is of a job of {} ranks, another of {}", steps.front().ranks, step.ranks), "",
                  "give the captures of one run");
    if (!ranks.insert(step.rank).second)
      throw Error(fmt::format("two captures are of rank {}", step.rank), "", "give the captures of one run, each once");
  }
}

std::vector<size_t> roles_of(const std::vector<StepOperations>& steps, RankSets* stages) {
  std::vector<size_t> out;
  std::vector<size_t> firsts;  // the first rank of each role
  for (const StepOperations& step : steps) {
    const auto same_role = [&](size_t first) {
      return stages->are_together(step.rank, steps[first].rank) && is_same_program(steps[first], step) &&
             has_same_shapes(steps[first], step);
    };
    const auto found = std::ranges::find_if(firsts, same_role);
    out.push_back(static_cast<size_t>(found - firsts.begin()));
    if (found == firsts.end()) firsts.push_back(out.size() - 1);
  }
  return out;
}

}  // namespace

JobRanks job_ranks(std::vector<StepOperations> steps, const StepConstants& constants) {
  check_one_job(steps);
  JobRanks out;
  out.steps = std::move(steps);
  std::ranges::sort(out.steps, {}, &StepOperations::rank);
  use_fastest_hosts(&out.steps, constants);
  const StepOperations& first = out.steps.front();
  RankSets replicas(first.ranks), stages(first.ranks);
  for (const StepOperations& step : out.steps) {
    replicas.join_shards(step);
    replicas.join_stages(step);
  }
  for (const StepOperations& step : out.steps) {
    stages.join_shards(step);
    stages.join_copies(step, &replicas);
  }
  out.roles = roles_of(out.steps, &stages);
  out.replicas = std::max<int64_t>(1, first.ranks / replicas.size_with(first.rank));
  return out;
}

}  // namespace gpucast

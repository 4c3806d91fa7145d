#include "src/job/job_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "gpucast/error.h"
#include "src/base/links.h"
#include "src/job/group_purpose.h"
#include "src/ranks/play.h"
#include "src/schedule/step_schedule.h"
#include "src/time/collective.h"
#include "src/work/communications.h"

namespace gpucast {
namespace {

const CollectiveShape& shape_of(const StepOperations& step, const StepOperation& operation) {
  return step.shapes[operation.shape].collective;
}
const Communication& communication_of(const StepOperations& step, const StepOperation& operation) {
  return step.communications[static_cast<size_t>(operation.communication)];
}

// Ranks that share the work of one sample: found by the purposes of their groups, and by their messages.
class Replicas {
 public:
  explicit Replicas(int64_t ranks) : parent_(static_cast<size_t>(ranks)) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }

  void add(const StepOperations& step) {
    const GroupPurposes purposes(step);
    for (const StepOperation& operation : step.operations) {
      if (operation.communication < 0) continue;
      const Communication& communication = communication_of(step, operation);
      for (const Message& message : communication.messages) join(step.rank, message.peer);
      if (communication.messages.empty() && purposes.shares_samples(communication.group))
        for (const int64_t rank : step.groups[communication.group].ranks) join(step.rank, rank);
    }
  }

  int64_t size_with(int64_t rank) {
    int64_t out = 0;
    for (size_t other = 0; other < parent_.size(); ++other) out += root(other) == root(static_cast<size_t>(rank));
    return out;
  }

 private:
  size_t root(size_t rank) {
    while (parent_[rank] != rank) rank = parent_[rank] = parent_[parent_[rank]];
    return rank;
  }
  void join(int64_t a, int64_t b) {
    const auto ranks = static_cast<int64_t>(parent_.size());
    if (a < 0 || b < 0 || a >= ranks || b >= ranks) return;
    parent_[root(static_cast<size_t>(a))] = root(static_cast<size_t>(b));
  }

  std::vector<size_t> parent_;
};

std::vector<CommunicationPart> parts_of(const StepOperations& step, const RankTime& time) {
  const GroupPurposes purposes(step);
  std::map<std::tuple<GroupPurpose, CollectiveKind, int64_t, int64_t>, CommunicationPart> parts;
  const auto part_of = [&](uint32_t group, const CollectiveShape& shape) -> CommunicationPart& {
    const auto ranks = static_cast<int64_t>(step.groups[group].ranks.size());
    const GroupPurpose purpose = purposes.of(group, shape.kind);
    CommunicationPart& part = parts[{purpose, shape.kind, ranks, shape.nodes}];
    part.purpose = purpose;
    part.kind = collective_kind_name(shape.kind);
    part.ranks = ranks;
    part.nodes = shape.nodes;
    return part;
  };
  std::map<std::pair<uint32_t, CollectiveKind>, const CollectiveShape*> shapes;
  for (const StepOperation& operation : step.operations) {
    if (operation.communication < 0) continue;
    const uint32_t group = communication_of(step, operation).group;
    const CollectiveShape& shape = shape_of(step, operation);
    CommunicationPart& part = part_of(group, shape);
    ++part.calls;
    part.bytes += static_cast<double>(shape.bytes);
    shapes.try_emplace({group, shape.kind}, &shape);
  }
  for (const CommunicationTime& one : time.communication) {
    const auto found = one.group < 0 ? shapes.end() : shapes.find({static_cast<uint32_t>(one.group), one.kind});
    if (found == shapes.end()) continue;
    CommunicationPart& part = part_of(found->first.first, *found->second);
    part.hidden_ns += one.hidden_ns;
    part.exposed_ns += one.exposed_ns;
    part.waiting_ns += one.waiting_ns;
  }
  std::vector<CommunicationPart> out;
  out.reserve(parts.size());
  for (const auto& [key, part] : parts) out.push_back(part);
  std::ranges::stable_sort(out, std::greater<>(), [](const CommunicationPart& part) { return part.exposed_ns + part.waiting_ns; });
  return out;
}

RankStep rank_step(const StepOperations& step, const RankTime& time) {
  return {time.rank,    time.schedule.step_ns, time.compute_ns,       time.exposed_ns,      time.waiting_ns,
          time.idle_ns, time.hidden_ns,        time.schedule.host_ns, parts_of(step, time), {}};
}

void add_slices(const std::vector<StepOperations>& steps, const JobTime& played, JobStep* out) {
  for (size_t r = 0; r < steps.size(); ++r) {
    const StepOperations& step = steps[r];
    const GroupPurposes purposes(step);
    std::vector<JobSlice>& slices = out->captured[r].slices;
    for (size_t i = 0; i < step.operations.size(); ++i) {
      const StepOperation& operation = step.operations[i];
      const OperationSpan& span = played.ranks[r].spans[i];
      JobSlice& slice = slices.emplace_back();
      slice.name = operation.name;
      slice.kind = operation_kind_name(step.shapes[operation.shape].kind);
      slice.stream = operation.stream;
      slice.start_ns = span.start_ns;
      slice.moves_ns = span.moves_ns;
      slice.end_ns = span.end_ns;
      if (operation.communication < 0) continue;
      const CollectiveShape& shape = shape_of(step, operation);
      const uint32_t group = communication_of(step, operation).group;
      slice.what = fmt::format("{}: {} of {}", group_purpose_name(purposes.of(group, shape.kind)), collective_kind_name(shape.kind),
                               step.groups[group].ranks.size());
    }
  }
  for (const PlayedOperation& one : played.critical_path) out->captured[one.rank].slices[one.operation].critical = true;
  for (const PlayedMessage& message : played.messages)
    out->messages.push_back({message.from.rank, message.from.operation, message.to.rank, message.to.operation});
}

// Ranks that captured ones exchange messages with, but that were not captured.
std::vector<int64_t> missing_ranks(const std::vector<StepOperations>& steps) {
  std::set<int64_t> out;
  for (const StepOperations& step : steps)
    for (const Communication& communication : step.communications)
      for (const Message& message : communication.messages) out.insert(message.peer);
  for (const StepOperations& step : steps) out.erase(step.rank);
  return {out.begin(), out.end()};
}

std::string capture_these_too(const std::vector<StepOperations>& steps, const std::vector<int64_t>& missing) {
  std::set<int64_t> all(missing.begin(), missing.end());
  for (const StepOperations& step : steps) all.insert(step.rank);
  return fmt::format("capture these, too: --ranks {}", fmt::join(all, ","));
}

// "rank 3, which was"; "ranks 1, 3, which were"
std::string ranks_which_were(const std::vector<int64_t>& ranks) {
  return ranks.size() == 1 ? fmt::format("rank {}, which was", ranks.front()) : fmt::format("ranks {}, which were", fmt::join(ranks, ", "));
}

void add_notes(const std::vector<StepOperations>& steps, JobStep* out) {
  if (!out->missing.empty())
    out->notes.push_back(fmt::format("the captured ranks exchange messages with {} not captured, so waits are missing in these times; {}",
                                     ranks_which_were(out->missing), capture_these_too(steps, out->missing)));
  if (std::ranges::all_of(steps, [](const StepOperations& step) { return step.communications.empty(); }))
    out->notes.emplace_back(
        "no rank sends anything to another in a step, so each trains a model of its own: does the script use torch.distributed?");
  std::set<std::string> assumed;
  for (const StepOperations& step : steps)
    for (const CommunicationGroup& group : step.groups)
      if (group.assumed) assumed.insert(group.name);
  if (!assumed.empty())
    out->notes.push_back(fmt::format("the ranks of {} communicator{} are not recorded: neighbours are assumed", assumed.size(),
                                     assumed.size() == 1 ? "" : "s"));
}

// Where stages of a pipeline are missing, the others may wait for each other forever.
JobTime play_captured(const std::vector<StepOperations>& steps, const std::vector<PlayedRank>& played, const std::vector<int64_t>& missing,
                      const StepConstants& constants) {
  try {
    return play(played, constants);
  } catch (const Error&) {
    if (missing.empty()) throw;
    throw Error(fmt::format("the captured ranks wait for messages of {} not captured", ranks_which_were(missing)), "",
                capture_these_too(steps, missing));
  }
}

// The part of its link's bandwidth that a communication needs: its bytes at the rate of many, over its time.
double link_part(Operation operation, const CardRates& rates) {
  constexpr int64_t kManyBytes = int64_t{1} << 30;
  const int64_t bytes = operation.collective.bytes;
  const double ns = operation_duration(operation, rates).expected_ns;
  if (bytes >= kManyBytes || ns <= 0) return 1;
  operation.collective.bytes = kManyBytes;
  return std::min(1.0, operation_duration(operation, rates).expected_ns * static_cast<double>(bytes) / kManyBytes / ns);
}

// What each shape's communication takes from kernels that run at the same time.
std::vector<CollectiveUse> uses_of(const StepOperations& step, const CardRates& rates) {
  std::vector<CollectiveUse> out(step.shapes.size());
  for (size_t i = 0; i < step.shapes.size(); ++i) {
    if (step.shapes[i].kind != OperationKind::collective) continue;
    const CollectiveShare share = collective_share(step.shapes[i], rates);
    out[i].multiprocessors = share.multiprocessors;
    out[i].memory = share.memory;
    out[i].link = link_part(step.shapes[i], rates);
    out[i].buffered_bytes = share.buffered_bytes;
  }
  return out;
}

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
// the same time. Returns a factor of each step's host time.
std::vector<double> use_fastest_hosts(std::vector<StepOperations>* steps, const StepConstants& constants) {
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
  std::vector<double> out;
  for (size_t i = 0; i < steps->size(); ++i) out.push_back(factors[program_of[i]]);
  return out;
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

}  // namespace

const char* group_purpose_name(GroupPurpose purpose) {
  switch (purpose) {
    case GroupPurpose::data:
      return "data";
    case GroupPurpose::tensor:
      return "tensor";
    case GroupPurpose::pipeline:
      return "pipeline";
    case GroupPurpose::expert:
      return "expert";
    case GroupPurpose::context:
      return "context";
  }
  return "";
}

int64_t ranks_of_node(const StepOperations& step, const Machine& machine) {
  const int64_t cards = machine.links.cards, host_cards = machine.cards_per_host > 0 ? machine.cards_per_host : cards;
  // `gpucast run --world-size` takes the usual number if --gpus does not name one.
  const bool chosen = step.node_ranks > 0 && step.node_ranks != kUsualNodeCards && step.node_ranks < step.ranks;
  const int64_t out = chosen && step.node_ranks < host_cards ? step.node_ranks : cards;
  if (step.ranks > out && machine.links.network_cards == 0)
    throw Error(
        fmt::format("a job of {} ranks needs {} of {}, which has no network", step.ranks, (step.ranks + out - 1) / out, machine.name), "",
        "name a machine with network cards: --machine, `gpucast machines`");
  return out;
}

JobStep job_step(std::vector<StepOperations> steps, const Machine& machine, const CardRates& rates, const StepConstants& constants,
                 const JobOptions& options) {
  check_one_job(steps);
  std::ranges::sort(steps, {}, &StepOperations::rank);
  const std::vector<double> host_factors = use_fastest_hosts(&steps, constants);
  const StepOperations& first = steps.front();
  const int64_t cards = ranks_of_node(first, machine);
  std::vector<PlayedRank> played;
  Replicas replicas(first.ranks);
  for (size_t i = 0; i < steps.size(); ++i) {
    StepOperations& step = steps[i];
    put_on_nodes(cards, &step);
    PlayedRank& rank = played.emplace_back();
    rank.rank = step.rank;
    rank.step = &step;
    rank.durations = durations_of(step, rates);
    rank.uses = uses_of(step, rates);
    rank.host_scale = host_scale(step.host, constants) * host_factors[i] / options.cpu_speed;
    replicas.add(step);
  }
  JobStep out;
  out.missing = missing_ranks(steps);
  const JobTime time = play_captured(steps, played, out.missing, constants);

  out.machine_id = machine.id;
  out.machine_name = machine.name;
  out.ranks = first.ranks;
  out.nodes = (first.ranks + cards - 1) / cards;
  out.replicas = std::max<int64_t>(1, first.ranks / replicas.size_with(first.rank));
  out.step.expected_ns = time.step_ns;
  for (size_t i = 0; i < steps.size(); ++i) {
    out.samples = std::max(out.samples, steps[i].samples * out.replicas);
    out.tokens = std::max(out.tokens, steps[i].tokens * out.replicas);
    out.captured.push_back(rank_step(steps[i], time.ranks[i]));
    if (out.captured[i].waiting_ns < out.captured[out.busiest].waiting_ns) out.busiest = i;
  }
  add_notes(steps, &out);
  if (options.slices) add_slices(steps, time, &out);
  return out;
}

}  // namespace gpucast

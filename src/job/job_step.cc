#include "src/job/job_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>
#include <tuple>

#include "gpucast/error.h"
#include "src/base/links.h"
#include "src/job/group_purpose.h"
#include "src/predict/facts.h"
#include "src/ranks/play.h"
#include "src/schedule/step_schedule.h"
#include "src/time/collective.h"
#include "src/work/communications.h"

namespace gpucast {
namespace {

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
  return {.rank = time.rank,
          .begin_ns = time.begin_ns,
          .step_ns = time.schedule.step_ns,
          .compute_ns = time.compute_ns,
          .exposed_ns = time.exposed_ns,
          .waiting_ns = time.waiting_ns,
          .idle_ns = time.idle_ns,
          .hidden_ns = time.hidden_ns,
          .host_ns = time.schedule.host_ns,
          .communication = parts_of(step, time),
          .slices = {}};
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
      slice.kernel = operation.kernel;
      slice.phase = phase_name(operation.phase);
      slice.stream = operation.stream;
      slice.launched_ns = span.launched_ns;
      slice.start_ns = span.start_ns;
      slice.moves_ns = span.moves_ns;
      slice.end_ns = span.end_ns;
      if (operation.communication < 0) continue;
      const CollectiveShape& shape = shape_of(step, operation);
      const uint32_t group = communication_of(step, operation).group;
      slice.purpose = purposes.of(group, shape.kind);
      slice.collective = {collective_kind_name(shape.kind), static_cast<int64_t>(step.groups[group].ranks.size()), shape.nodes, shape.bytes,
                          step.groups[group].name};
      if (span.last_rank >= 0) slice.waits_for_rank = steps[static_cast<size_t>(span.last_rank)].rank;
    }
  }
  for (const PlayedOperation& one : played.critical_path) out->captured[one.rank].slices[one.operation].critical = true;
  for (const PlayedMessage& message : played.messages)
    out->messages.push_back({message.from.rank, message.from.operation, message.to.rank, message.to.operation});
}

// A gap in the path is the host's: of the rank whose operation follows, or of the rank that this one waited for.
std::vector<CriticalPart> critical_parts(const std::vector<StepOperations>& steps, const JobTime& played) {
  std::map<std::pair<int64_t, std::string>, double> parts;
  std::vector<GroupPurposes> purposes;  // by rank
  purposes.reserve(steps.size());
  for (const StepOperations& step : steps) purposes.emplace_back(step);
  double until_ns = 0;
  for (const PlayedOperation& one : played.critical_path | std::views::reverse) {
    const StepOperations& step = steps[one.rank];
    const StepOperation& operation = step.operations[one.operation];
    const OperationSpan& span = played.ranks[one.rank].spans[one.operation];
    if (span.end_ns <= until_ns) continue;
    const double from_ns = std::max(until_ns, span.moves_ns);
    const int64_t late = span.last_rank < 0 ? step.rank : steps[static_cast<size_t>(span.last_rank)].rank;
    if (from_ns > until_ns) parts[{late, "host"}] += from_ns - until_ns;
    const char* what = "compute";
    if (operation.communication >= 0)
      what = group_purpose_name(purposes[one.rank].of(communication_of(step, operation).group, shape_of(step, operation).kind));
    parts[{step.rank, what}] += span.end_ns - from_ns;
    until_ns = span.end_ns;
  }
  const auto last = std::ranges::max_element(played.ranks, {}, &RankTime::end_ns);
  if (played.step_ns > until_ns + kSameNs) parts[{last->rank, "host"}] += played.step_ns - until_ns;
  std::vector<CriticalPart> out;
  out.reserve(parts.size());
  for (const auto& [key, ns] : parts) out.push_back({key.first, key.second, ns});
  std::ranges::stable_sort(out, std::greater<>(), &CriticalPart::ns);
  return out;
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
    out[i].moving = share.moving;
    out[i].link = link_part(step.shapes[i], rates);
    out[i].buffered_bytes = share.buffered_bytes;
  }
  return out;
}

// The job's step, where all communication takes its durations' `end` (Duration::low_ns or high_ns).
double step_with_communication(std::vector<PlayedRank> ranks, double Duration::*end, const StepConstants& constants) {
  for (PlayedRank& rank : ranks)
    for (size_t i = 0; i < rank.durations.size(); ++i)
      if (rank.step->shapes[i].kind == OperationKind::collective) rank.durations[i].expected_ns = rank.durations[i].*end;
  return play_step_ns(ranks, constants);
}

}  // namespace

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

std::vector<int64_t> missing_stages(const std::vector<const Facts*>& ranks) {
  std::set<int64_t> out;
  for (const Facts* facts : ranks) {
    if (!facts->step) continue;
    for (const Communication& communication : facts->step->communications)
      for (const Message& message : communication.messages)
        if (!message.routed) out.insert(message.peer);
  }
  for (const Facts* facts : ranks)
    if (facts->step) out.erase(facts->step->rank);
  return {out.begin(), out.end()};
}

JobStep job_step(JobRanks* job, const Machine& machine, const CardRates& rates, const StepConstants& constants, const JobOptions& options) {
  std::vector<StepOperations>& steps = job->steps;
  const StepOperations& first = steps.front();
  const int64_t cards = ranks_of_node(first, machine);
  std::vector<PlayedRank> played;
  for (StepOperations& step : steps) {
    put_on_nodes(cards, &step);
    PlayedRank& rank = played.emplace_back();
    rank.rank = step.rank;
    rank.step = &step;
    rank.durations = durations_of(step, rates);
    rank.uses = uses_of(step, rates);
    rank.host_scale = host_scale(step.host, constants) / options.cpu_speed;
  }
  JobStep out;
  out.missing = missing_ranks(steps);
  const JobTime time = play_captured(steps, played, out.missing, constants);

  out.machine_id = machine.id;
  out.machine_name = machine.name;
  out.ranks = first.ranks;
  out.nodes = (first.ranks + cards - 1) / cards;
  out.replicas = job->replicas;
  out.step.expected_ns = out.played_ns = time.step_ns;
  out.step.low_ns = std::min(time.step_ns, step_with_communication(played, &Duration::low_ns, constants));
  out.step.high_ns = std::max(time.step_ns, step_with_communication(played, &Duration::high_ns, constants));
  for (size_t i = 0; i < steps.size(); ++i) {
    out.samples = std::max(out.samples, steps[i].samples * out.replicas);
    out.tokens = std::max(out.tokens, steps[i].tokens * out.replicas);
    out.captured.push_back(rank_step(steps[i], time.ranks[i]));
    out.captured[i].role = job->roles[i];
    if (out.captured[i].waiting_ns < out.captured[out.busiest].waiting_ns) out.busiest = i;
  }
  out.critical = critical_parts(steps, time);
  add_notes(steps, &out);
  if (options.slices) add_slices(steps, time, &out);
  return out;
}

}  // namespace gpucast

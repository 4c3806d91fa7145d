#include "src/work/communications.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/bounded.h"
#include "src/base/links.h"

namespace gpucast {
namespace {

bool is_message(std::string_view call) { return call == "ncclSend" || call == "ncclRecv" || call == "ncclPutSignal"; }

// Where the ranks of a communicator are not recorded: a block of neighbours that `rank` is in.
CommunicationGroup assumed_group(const std::string& name, int64_t rank, int64_t size, int64_t world) {
  CommunicationGroup out{name, {}, size < world};
  const int64_t first = size < world ? rank / size * size : 0;
  for (int64_t i = 0; i < size; ++i) out.ranks.push_back(first + i);
  return out;
}

int64_t recorded_cards(const StepOperations& step) { return step.node_ranks > 0 ? step.node_ranks : kUsualNodeCards; }

int64_t nodes_of(const Communication& communication, const CommunicationGroup& group, int64_t rank, int64_t cards) {
  std::set<int64_t> nodes;
  if (communication.messages.empty()) {
    for (const int64_t member : group.ranks) nodes.insert(member / cards);
  } else {
    nodes.insert(rank / cards);
    for (const Message& message : communication.messages) nodes.insert(message.peer / cards);
  }
  return static_cast<int64_t>(nodes.size());
}

}  // namespace

const Communicator* find_communicator(const Trace& trace, std::string_view name) {
  const auto found = std::ranges::find(trace.communicators, name, &Communicator::name);
  return found == trace.communicators.end() ? nullptr : &*found;
}

Communications::Communications(const Trace& trace, StepOperations* out) : trace_(trace), out_(*out) {
  out_.rank = trace.process.rank;
  out_.ranks = std::max<int64_t>(1, trace.process.world_size);
  out_.node_ranks = trace.node_ranks;
}

void Communications::begin(std::string_view call, const CallArguments& arguments, const Operation& operation) {
  made_ = {group_of(arguments), {}};
  open_ = true;
  add_message(call, arguments, operation);
}

void Communications::join(std::string_view call, const CallArguments& arguments, const Operation& other, Operation* operation) {
  add_message(call, arguments, other);
  operation->bytes_read = bounded_sum(operation->bytes_read, other.bytes_read);
  operation->bytes_written = bounded_sum(operation->bytes_written, other.bytes_written);
  CollectiveShape& shape = operation->collective;
  shape.bytes = bounded_sum(shape.bytes, other.collective.bytes);
  ++shape.calls;
}

int32_t Communications::end(Operation* operation) {
  open_ = false;
  CollectiveShape& shape = operation->collective;
  const CommunicationGroup& group = out_.groups[made_.group];
  if (!made_.messages.empty()) {
    const bool all = reaches_all();
    if (!all) leave_out_own_messages();
    int64_t sent = 0, received = 0;
    for (const Message& message : made_.messages) (message.receives ? received : sent) += message.bytes;
    shape.bytes = std::max(sent, received);
    if (all) {
      shape.kind = CollectiveKind::all_to_all;
      made_.messages.clear();
    } else {
      std::set<int64_t> peers;
      for (const Message& message : made_.messages) peers.insert(message.peer);
      shape.ranks = static_cast<int64_t>(peers.size()) + 1;
    }
  }
  shape.nodes = nodes_of(made_, group, out_.rank, recorded_cards(out_));
  const auto [found, added] = known_.try_emplace(made_, static_cast<int32_t>(out_.communications.size()));
  if (added) out_.communications.push_back(made_);
  return found->second;
}

uint32_t Communications::group_of(const CallArguments& arguments) {
  const auto [found, added] = groups_.try_emplace(arguments.group, static_cast<uint32_t>(out_.groups.size()));
  if (!added) return found->second;
  if (const Communicator* known = find_communicator(trace_, arguments.group)) {
    out_.groups.push_back({known->name, known->ranks, false, known->descriptions});
  } else {
    out_.groups.push_back(assumed_group(arguments.group, out_.rank, std::clamp<int64_t>(arguments.world, 1, out_.ranks), out_.ranks));
  }
  return found->second;
}

void Communications::add_message(std::string_view call, const CallArguments& arguments, const Operation& operation) {
  if (!is_message(call)) return;
  const std::vector<int64_t>& ranks = out_.groups[group_of(arguments)].ranks;
  if (arguments.peer < 0 || arguments.peer >= static_cast<int64_t>(ranks.size())) return;
  const bool receives = call == "ncclRecv";
  made_.messages.push_back(
      {ranks[static_cast<size_t>(arguments.peer)], receives ? operation.bytes_written : operation.bytes_read, receives});
}

// Only an exchange of all with all has messages to itself. Its sends and its receives may be two operations.
void Communications::leave_out_own_messages() {
  const auto is_own = [&](const Message& message) { return message.peer == out_.rank; };
  if (std::erase_if(made_.messages, is_own) == 0) return;
  for (Message& message : made_.messages) message.routed = true;
}

// Whether each rank of a group of three and more sends to all others and receives from them.
bool Communications::reaches_all() const {
  std::set<std::pair<int64_t, bool>> reached;
  for (const Message& message : made_.messages)
    if (message.peer != out_.rank) reached.emplace(message.peer, message.receives);
  const size_t ranks = out_.groups[made_.group].ranks.size();
  const bool to_itself = std::ranges::any_of(made_.messages, [&](const Message& message) { return message.peer == out_.rank; });
  return (ranks > 2 || to_itself) && reached.size() == 2 * (ranks - 1);
}

void put_on_nodes(int64_t cards, StepOperations* step) {
  if (cards <= 0) cards = recorded_cards(*step);
  // Operations of one shape may be of groups that lie on different numbers of nodes.
  std::map<std::tuple<uint32_t, int64_t, int64_t>, uint32_t> known;  // by shape, ranks and nodes
  std::vector<bool> taken(step->shapes.size());
  for (StepOperation& operation : step->operations) {
    if (operation.communication < 0) continue;
    const Communication& made = step->communications[static_cast<size_t>(operation.communication)];
    const CommunicationGroup& group = step->groups[made.group];
    CollectiveShape shape = step->shapes[operation.shape].collective;
    if (made.messages.empty()) shape.ranks = static_cast<int64_t>(group.ranks.size());
    shape.nodes = nodes_of(made, group, step->rank, cards);
    const auto [found, added] = known.try_emplace({operation.shape, shape.ranks, shape.nodes}, operation.shape);
    if (added && taken[operation.shape]) {
      found->second = static_cast<uint32_t>(step->shapes.size());
      step->shapes.push_back(step->shapes[operation.shape]);
    } else if (added) {
      taken[operation.shape] = true;
    }
    operation.shape = found->second;
    step->shapes[operation.shape].collective = shape;
  }
}

}  // namespace gpucast

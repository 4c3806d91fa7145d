#include "src/work/communications.h"

#include <gtest/gtest.h>

#include "src/work/library_call.h"

namespace gpucast {
namespace {

// A capture of rank 1 of 4, with two ranks on a node.
Trace trace_of_rank_1() {
  Trace trace;
  trace.process.rank = 1;
  trace.process.world_size = 4;
  trace.node_ranks = 2;
  trace.communicators = {{"world", {0, 1, 2, 3}}, {"odd", {1, 3}}};
  return trace;
}

CallArguments call(const char* group, int64_t world, int64_t count, int64_t peer = -1) {
  CallArguments out;
  out.type = "float32";
  out.group = group;
  out.world = world;
  out.count = count;
  out.peer = peer;
  return out;
}

struct Made {
  Operation operation;
  Communication communication;
};

// One operation of these calls.
Made made_of(const Trace& trace, const std::vector<std::pair<const char*, CallArguments>>& calls, StepOperations* step) {
  Communications communications(trace, step);
  Made out;
  for (const auto& [name, arguments] : calls) {
    const Operation operation = *library_call("nccl", name, arguments, {});
    if (communications.is_open()) {
      communications.join(name, arguments, operation, &out.operation);
    } else {
      out.operation = operation;
      communications.begin(name, arguments, operation);
    }
  }
  out.communication = step->communications[static_cast<size_t>(communications.end(&out.operation))];
  return out;
}

TEST(Communications, AGroupHasTheRanksOfTheCapture) {
  const Trace trace = trace_of_rank_1();
  StepOperations step;
  const Made made = made_of(trace, {{"ncclAllReduce", call("odd", 2, 100)}}, &step);
  EXPECT_EQ(step.groups[made.communication.group].ranks, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(made.operation.collective, (CollectiveShape{CollectiveKind::all_reduce, 2, 2, 400, 1}));
}

TEST(Communications, UnknownGroupsAreNeighbours) {
  const Trace trace = trace_of_rank_1();
  StepOperations step;
  const Made made = made_of(trace, {{"ncclAllGather", call("other", 2, 100)}}, &step);
  EXPECT_EQ(step.groups[made.communication.group], (CommunicationGroup{"other", {0, 1}, true}));
  EXPECT_EQ(made.operation.collective, (CollectiveShape{CollectiveKind::all_gather, 2, 1, 800, 1}));
}

TEST(Communications, SendsToAllAndReceivesFromAllAreAnAllToAll) {
  const Trace trace = trace_of_rank_1();
  StepOperations step;
  std::vector<std::pair<const char*, CallArguments>> calls;
  for (int64_t peer = 0; peer < 4; ++peer) {
    calls.emplace_back("ncclSend", call("world", 4, 100, peer));
    calls.emplace_back("ncclRecv", call("world", 4, 100, peer));
  }
  const Made made = made_of(trace, calls, &step);
  EXPECT_TRUE(made.communication.messages.empty());
  EXPECT_EQ(made.operation.collective, (CollectiveShape{CollectiveKind::all_to_all, 4, 2, 1600, 8}));
}

TEST(Communications, SendsToAllAndItselfAreAPartOfAnExchange) {
  const Trace trace = trace_of_rank_1();
  StepOperations step;
  const Made made = made_of(trace, {{"ncclSend", call("odd", 2, 100, 0)}, {"ncclSend", call("odd", 2, 50, 1)}}, &step);
  EXPECT_EQ(made.communication.messages, (std::vector<Message>{{3, 200, false, true}}));
  EXPECT_EQ(made.operation.collective.bytes, 200);
}

TEST(Communications, MessagesNameRanksOfTheJob) {
  const Trace trace = trace_of_rank_1();
  StepOperations step;
  const Made made = made_of(trace, {{"ncclSend", call("odd", 2, 100, 1)}, {"ncclRecv", call("world", 4, 50, 0)}}, &step);
  EXPECT_EQ(made.communication.messages, (std::vector<Message>{{3, 400, false}, {0, 200, true}}));
  EXPECT_EQ(made.operation.collective.bytes, 400);
}

TEST(Communications, OtherMachinesHaveOtherNodes) {
  const Trace trace = trace_of_rank_1();
  StepOperations step;
  const Made made = made_of(trace, {{"ncclAllReduce", call("world", 4, 100)}}, &step);
  step.shapes = {made.operation};
  step.operations.emplace_back();
  step.operations.back().communication = 0;
  for (const auto& [cards, nodes] : {std::pair<int64_t, int64_t>{4, 1}, {1, 4}, {0, 2}}) {
    put_on_nodes(cards, &step);
    EXPECT_EQ(step.shapes[0].collective.nodes, nodes);
  }
}

TEST(Communications, GroupsOnOtherNodesHaveShapesOfTheirOwn) {
  StepOperations step;
  step.ranks = 8;
  step.groups = {{"near", {0, 1}, false}, {"far", {0, 4}, false}};
  step.communications = {{0, {}}, {1, {}}};
  step.shapes.emplace_back();
  for (const int32_t communication : {0, 1, 0}) {
    step.operations.emplace_back();
    step.operations.back().communication = communication;
  }
  const auto nodes_of = [&](size_t operation) { return step.shapes[step.operations[operation].shape].collective.nodes; };
  for (const int64_t cards : {4, 8, 4}) {
    put_on_nodes(cards, &step);
    EXPECT_EQ(nodes_of(0), 1);
    EXPECT_EQ(nodes_of(1), cards == 4 ? 2 : 1);
    EXPECT_EQ(nodes_of(2), 1);
  }
  EXPECT_EQ(step.shapes.size(), 2u);
}

}  // namespace
}  // namespace gpucast

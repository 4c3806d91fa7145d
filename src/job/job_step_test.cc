#include "src/job/job_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/job/group_purpose.h"
#include "src/job/more_replicas.h"
#include "src/ranks/hand_made_ranks.h"
#include "src/time/duration.h"

namespace gpucast {
namespace {

// A rank of eight, with 32 samples in a step.
StepOperations ready(HandMadeRank* made, int64_t rank, int64_t host_us = 10) {
  StepOperations& step = made->step();
  step.rank = rank;
  step.ranks = step.node_ranks = 8;
  step.samples = 32;
  step.host_ns = host_us * 1000;
  return step;
}

JobStep job_of(JobRanks ranks, const Machine& machine = find_machine("dgx-a100-80")) {
  CardRates rates = card_rates(find_gpu("a100-80"));
  rates.links = machine.links;
  return job_step(&ranks, machine, rates, step_constants(), {});
}

JobStep job_of(std::vector<StepOperations> steps, const Machine& machine = find_machine("dgx-a100-80")) {
  return job_of(job_ranks(std::move(steps), step_constants()), machine);
}

// A forward that sums over `tensor`, and a backward that sums over `data`.
StepOperations parallel_rank(int64_t rank, const std::vector<int64_t>& tensor, const std::vector<int64_t>& data) {
  HandMadeRank made(rank);
  const uint32_t inside = made.group("tensor", tensor), across = made.group("data", data);
  const size_t forward = made.collective(inside, 10, 1, CollectiveKind::all_reduce, 1 << 20);
  const size_t backward = made.collective(across, 10);
  made.step().operations[forward].phase = Phase::forward;
  made.step().operations[backward].phase = Phase::backward;
  return ready(&made, rank);
}

TEST(JobStep, RanksThatSumInAForwardAreOneReplica) {
  const JobStep job = job_of({parallel_rank(0, {0, 1}, {0, 2, 4, 6})});
  EXPECT_EQ(job.replicas, 4);
  EXPECT_EQ(job.samples, 4 * 32);
  ASSERT_EQ(job.captured[0].communication.size(), 2u);
  for (const CommunicationPart& part : job.captured[0].communication)
    EXPECT_EQ(part.purpose, part.ranks == 2 ? GroupPurpose::tensor : GroupPurpose::data);
}

TEST(JobStep, ALossIsAveragedOverReplicas) {
  HandMadeRank made(0);
  const uint32_t all = made.group("all", {0, 1, 2, 3, 4, 5, 6, 7});
  made.step().operations[made.collective(all, 10, 1, CollectiveKind::all_reduce, 4)].phase = Phase::loss;
  const JobStep job = job_of({ready(&made, 0)});
  EXPECT_EQ(job.replicas, 8);
  EXPECT_EQ(job.captured[0].communication[0].purpose, GroupPurpose::data);
}

TEST(JobStep, SumsOfABackwardLeaveEachRankAReplica) { EXPECT_EQ(job_of({parallel_rank(0, {0}, {0, 1, 2, 3, 4, 5, 6, 7})}).replicas, 8); }

TEST(JobStep, MessagesConnectTheStagesOfAReplica) {
  std::vector<StepOperations> steps;
  for (const int64_t rank : {0, 1}) {
    HandMadeRank made(rank);
    made.messages(made.group("stages", {0, 1, 2, 3, 4, 5, 6, 7}), {{1 - rank, 1000, rank == 1}}, 10);
    steps.push_back(ready(&made, rank));
  }
  const JobStep both = job_of(steps);
  EXPECT_EQ(both.replicas, 4);
  EXPECT_TRUE(both.notes.empty());
  const JobStep one = job_of({steps[0]});
  ASSERT_EQ(one.notes.size(), 1u);
  EXPECT_NE(one.notes[0].find("--ranks 0,1"), std::string::npos);
}

TEST(JobStep, StagesThatWaitForMissingOnesNameThem) {
  // The middle of three stages: it waits for the first, which waits for the last.
  std::vector<StepOperations> steps;
  for (const int64_t rank : {1, 2}) {
    HandMadeRank made(rank);
    const uint32_t group = made.group("stages", {0, 1, 2, 3, 4, 5, 6, 7});
    made.messages(group, {{3 - rank, 1000, true}}, 10);
    made.messages(group, {{3 - rank, 1000, false}}, 10);
    made.messages(group, {{rank == 1 ? 0 : 3, 1000, true}}, 10);
    steps.push_back(ready(&made, rank));
  }
  try {
    (void)job_of(steps);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ranks 0, 3"), std::string::npos) << error.what();
  }
}

TEST(JobStep, RanksThatNeverCommunicateAreNamed) {
  HandMadeRank made(0);
  made.compute(10);
  EXPECT_EQ(job_of({ready(&made, 0)}).notes.size(), 1u);
}

TEST(JobStep, RanksOfOneProgramHaveTheFastestHost) {
  std::vector<StepOperations> steps;
  for (const int64_t rank : {0, 1}) {
    HandMadeRank made(rank);
    made.compute(10);
    made.collective(made.group("all", {0, 1, 2, 3, 4, 5, 6, 7}), 10);
    steps.push_back(ready(&made, rank, rank == 0 ? 1000 : 90'000));
  }
  EXPECT_LT(job_of(steps).step.expected_ns, 2e6);
  steps[0].operations[0].name = "another program";
  EXPECT_GT(job_of(steps).step.expected_ns, 50e6);
}

// Rank 1 has no rows of the last parameter, and nothing to update there.
TEST(JobStep, RanksOfAlmostOneProgramHaveTheFastestPace) {
  std::vector<StepOperations> steps;
  for (const int64_t rank : {0, 1}) {
    HandMadeRank made(rank);
    for (int i = 0; i < (rank == 0 ? 20 : 19); ++i) made.compute(10);
    made.collective(made.group("all", {0, 1, 2, 3, 4, 5, 6, 7}), 10);
    steps.push_back(ready(&made, rank, rank == 0 ? 90'000 : 2000));
  }
  EXPECT_LT(job_of(steps).step.expected_ns, 3e6);
}

// A loss that is summed over replicas belongs to no layer.
TEST(JobStep, ASmallSumInAForwardIsAFigure) {
  HandMadeRank made(0);
  const size_t forward = made.collective(made.group("all", {0, 1, 2, 3, 4, 5, 6, 7}), 10);
  made.step().operations[forward].phase = Phase::forward;
  made.step().shapes[made.step().operations[forward].shape].collective.bytes = 4;
  EXPECT_EQ(job_of({ready(&made, 0)}).replicas, 8);
}

TEST(GroupPurpose, FollowsTheProgramsDescription) {
  using enum GroupPurpose;
  for (const auto& [description, purpose] :
       std::vector<std::pair<std::string, std::optional<GroupPurpose>>>{{"mesh_tp", tensor},
                                                                        {"mesh_dp_shard_cp", data},
                                                                        {"mesh_dp_replicate", data},
                                                                        {"mesh_cp", context},
                                                                        {"mesh_ep", expert},
                                                                        {"mesh_efsdp", data},
                                                                        {"pp_p2p_downstream", pipeline},
                                                                        {"TENSOR_MODEL_PARALLEL_GROUP", tensor},
                                                                        {"PIPELINE_MODEL_PARALLEL_GROUP", pipeline},
                                                                        {"EMBEDDING_GROUP", pipeline},
                                                                        {"DATA_PARALLEL_GROUP_WITH_CP", data},
                                                                        {"EXPERT_MODEL_PARALLEL_GROUP", expert},
                                                                        {"EXPERT_DATA_PARALLEL_GROUP", data},
                                                                        {"TENSOR_AND_DATA_PARALLEL_GROUP", std::nullopt},
                                                                        {"default_pg", std::nullopt},
                                                                        {"undefined", std::nullopt},
                                                                        {"mesh_dim_0", std::nullopt}})
    EXPECT_EQ(described_purpose(description), purpose) << description;
}

// A ring of context parallel ranks exchanges keys and values; without its description it would be a pipeline.
TEST(JobStep, ADescribedGroupHasItsPurpose) {
  std::vector<StepOperations> steps;
  for (const int64_t rank : {0, 1}) {
    HandMadeRank made(rank);
    const uint32_t ring = made.group("ring", {0, 1});
    made.step().groups[ring].descriptions = {"mesh_cp"};
    made.messages(ring, {{1 - rank, 1000, rank == 1}}, 10);
    steps.push_back(ready(&made, rank));
  }
  const JobStep job = job_of(steps);
  EXPECT_EQ(job.replicas, 4);
  EXPECT_EQ(job.captured[0].communication[0].purpose, GroupPurpose::context);
}

// Each rank draws its tokens' experts for itself, and has samples of its own.
TEST(JobStep, RoutedMessagesMayHaveOtherBytesOnEachRank) {
  std::vector<StepOperations> steps;
  for (const int64_t rank : {0, 1}) {
    HandMadeRank made(rank);
    const uint32_t group = made.group("all", {0, 1, 2, 3, 4, 5, 6, 7});
    made.messages(group, {{1 - rank, 1000 + rank, false, true}}, 10);
    made.messages(group, {{1 - rank, 1000 + rank, true, true}}, 10);
    steps.push_back(ready(&made, rank));
  }
  const JobStep job = job_of(steps);
  EXPECT_EQ(job.replicas, 8);
  EXPECT_EQ(job.captured[0].communication[0].purpose, GroupPurpose::expert);
}

TEST(JobStep, AMachineHoldsTheJobOrHasANetwork) {
  StepOperations step = parallel_rank(0, {0}, {0, 1, 2, 3, 4, 5, 6, 7});
  Machine machine = find_machine("dgx-a100-80");
  EXPECT_EQ(job_of({step}, machine).nodes, 1);
  machine.links.cards = 4;
  EXPECT_EQ(job_of({step}, machine).nodes, 2);
  machine.links.cards = 8;
  step.node_ranks = 2;
  EXPECT_EQ(job_of({step}, machine).nodes, 4) << "as the launcher said";
  machine.links.network_cards = 0;
  EXPECT_THROW(job_of({step}, machine), Error);
}

TEST(JobStep, CapturesOfDifferentJobsAreRefused) {
  const StepOperations one = parallel_rank(0, {0}, {0, 1}), same = parallel_rank(0, {0}, {0, 1});
  EXPECT_THROW(job_of({one, same}), Error);
  StepOperations other = parallel_rank(1, {1}, {0, 1});
  other.ranks = 16;
  EXPECT_THROW(job_of({one, other}), Error);
}

double sum_of(const std::vector<CriticalPart>& parts) {
  double out = 0;
  for (const CriticalPart& part : parts) out += part.ns;
  return out;
}

TEST(JobStep, TheCriticalPathIsTheWholeStep) {
  HandMadeRank made(0);
  const uint32_t group = made.group("all", {0, 1, 2, 3, 4, 5, 6, 7});
  made.compute(10);
  made.all_reduce_after_compute(group, 10);
  StepOperations late = ready(&made, 0, 1000);
  late.operations[0].asked_ns = 1'000'000;
  const JobStep job = job_of({late});
  EXPECT_NEAR(sum_of(job.critical), job.played_ns, 1);
  EXPECT_EQ(job.critical[0].what, "host");
  EXPECT_TRUE(std::ranges::any_of(job.critical, [](const CriticalPart& part) { return part.what == "data"; }));
}

TEST(JobStep, CommunicationWidensTheStep) {
  std::vector<StepOperations> steps;
  for (const int64_t bytes : {int64_t{0}, int64_t{1} << 30}) {
    HandMadeRank made(0);
    made.compute(10);
    made.collective(made.group("all", {0, 1, 2, 3, 4, 5, 6, 7}), 10, 1, CollectiveKind::all_reduce, bytes);
    steps.push_back(ready(&made, 0));
  }
  const TimeRange little = job_of({steps[0]}).step, much = job_of({steps[1]}).step;
  EXPECT_LT(much.low_ns, 0.9 * much.expected_ns);
  EXPECT_GT(much.high_ns, 1.1 * much.expected_ns);
  EXPECT_GT(much.high_ns - much.expected_ns, 10 * (little.high_ns - little.expected_ns));
}

// A rank of a job of eight: two stages of two shards each, twice. Rank = stage * 4 + replica * 2 + shard.
StepOperations staged_rank(int64_t rank) {
  HandMadeRank made(rank);
  const int64_t stage = rank / 4, in_stage = rank % 4, shard = rank % 2;
  const uint32_t tensor = made.group("tensor", {rank - shard, rank - shard + 1});
  const uint32_t data = made.group("data", {stage * 4 + shard, stage * 4 + shard + 2});
  const uint32_t stages = made.group("stages", {in_stage, in_stage + 4});
  const uint32_t all = made.group("all", {0, 1, 2, 3, 4, 5, 6, 7});
  made.step().operations[made.collective(tensor, 10, 1, CollectiveKind::all_reduce, 1 << 20)].phase = Phase::forward;
  made.messages(stages, {{stage == 0 ? rank + 4 : rank - 4, 1000, stage == 1}}, 10);
  for (const uint32_t group : {data, all}) made.step().operations[made.collective(group, 10)].phase = Phase::backward;
  return ready(&made, rank);
}

TEST(JobRanks, StagesAreRolesAndShardsAreNot) {
  std::vector<StepOperations> steps;
  for (int64_t rank = 7; rank >= 0; --rank) steps.push_back(staged_rank(rank));
  const JobRanks job = job_ranks(std::move(steps), step_constants());
  EXPECT_EQ(job.replicas, 2);
  EXPECT_EQ(job.roles, (std::vector<size_t>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(MoreReplicas, GroupsAcrossReplicasGrow) {
  JobRanks job = job_ranks({staged_rank(0), staged_rank(4)}, step_constants());
  set_replicas(24, &job);
  EXPECT_EQ(job.replicas, 6);
  const StepOperations &first = job.steps[0], &second = job.steps[1];
  EXPECT_EQ(second.rank, 12);
  EXPECT_EQ(second.ranks, 24);
  EXPECT_EQ(first.groups[0].ranks, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(first.groups[1].ranks, (std::vector<int64_t>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(second.groups[1].ranks, (std::vector<int64_t>{12, 14, 16, 18, 20, 22}));
  EXPECT_EQ(first.groups[2].ranks, (std::vector<int64_t>{0, 12}));
  EXPECT_EQ(first.groups[3].ranks.size(), 24u);
  EXPECT_EQ(second.communications[1].messages[0].peer, 0);
  const JobStep played = job_of(job);
  EXPECT_EQ(played.nodes, 3);
  EXPECT_EQ(played.samples, 6 * 32);
  for (const CommunicationPart& part : played.captured[0].communication) {
    const bool across = part.purpose == GroupPurpose::data;
    EXPECT_TRUE(across ? part.ranks == 6 || part.ranks == 24 : part.ranks == 2) << part.ranks;
  }
}

TEST(MoreReplicas, FewerLeaveOutLaterReplicas) {
  JobRanks job = job_ranks({staged_rank(0), staged_rank(2), staged_rank(4), staged_rank(6)}, step_constants());
  set_replicas(4, &job);
  ASSERT_EQ(job.steps.size(), 2u);
  EXPECT_EQ(job.steps[1].rank, 2);
  EXPECT_EQ(job.steps[0].groups[1].ranks, (std::vector<int64_t>{0}));
}

TEST(MoreReplicas, WhatTheGroupsDoNotSayIsRefused) {
  const auto refused = [](JobRanks job, int64_t ranks) {
    try {
      set_replicas(ranks, &job);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused(job_ranks({staged_rank(0)}, step_constants()), 6).find("no multiple"), std::string::npos);
  EXPECT_NE(refused(job_ranks({parallel_rank(0, {0, 1, 2, 3, 4, 5, 6, 7}, {0})}, step_constants()), 16).find("one replica"),
            std::string::npos);
  // Sharded within four replicas of eight, and summed across.
  EXPECT_NE(refused(job_ranks({parallel_rank(0, {0}, {0, 1, 2, 3})}, step_constants()), 16).find("do not say"), std::string::npos);
}

}  // namespace
}  // namespace gpucast

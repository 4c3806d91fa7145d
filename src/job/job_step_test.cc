#include "src/job/job_step.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/job/group_purpose.h"
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

JobStep job_of(std::vector<StepOperations> steps, const Machine& machine = find_machine("dgx-a100-80")) {
  CardRates rates = card_rates(find_gpu("a100-80"));
  rates.links = machine.links;
  return job_step(std::move(steps), machine, rates, step_constants(), {});
}

// A forward that sums over `tensor`, and a backward that sums over `data`.
StepOperations parallel_rank(int64_t rank, const std::vector<int64_t>& tensor, const std::vector<int64_t>& data) {
  HandMadeRank made(rank);
  const uint32_t inside = made.group("tensor", tensor), across = made.group("data", data);
  const size_t forward = made.collective(inside, 10);
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

}  // namespace
}  // namespace gpucast

#include "src/ranks/play.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/ranks/hand_made_ranks.h"

namespace gpucast {
namespace {

// One rank of a group {0, 1}: it computes, then all-reduces, then computes 10 us.
HandMadeRank plain_rank(int64_t number, double compute_us, double reduce_us = 20) {
  HandMadeRank rank(number);
  const uint32_t group = rank.group("world", {0, 1});
  rank.compute(compute_us);
  rank.all_reduce_after_compute(group, reduce_us);
  rank.after(0, 1);
  rank.compute(10);
  return rank;
}

double parts_ns(const RankTime& rank) { return rank.compute_ns + rank.exposed_ns + rank.waiting_ns + rank.idle_ns; }

TEST(Play, ACollectiveWaitsForItsLastRank) {
  HandMadeRank fast = plain_rank(0, 100), late = plain_rank(1, 150);
  const JobTime job = play_free({fast.played(), late.played()});
  EXPECT_DOUBLE_EQ(job.step_ns, 180 * kUsNs);
  EXPECT_DOUBLE_EQ(job.gpu_ns, 180 * kUsNs);
  for (const RankTime& rank : job.ranks) {
    EXPECT_DOUBLE_EQ(rank.schedule.step_ns, 180 * kUsNs);
    EXPECT_NEAR(parts_ns(rank), rank.schedule.step_ns, 1);
    EXPECT_DOUBLE_EQ(rank.exposed_ns, 20 * kUsNs);
    EXPECT_DOUBLE_EQ(rank.idle_ns, 0);
    EXPECT_EQ(rank.imagined_messages, 0);
  }
  EXPECT_DOUBLE_EQ(job.ranks[0].waiting_ns, 50 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[0].compute_ns, 110 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[1].waiting_ns, 0);
  const OperationSpan& span = job.ranks[0].spans[1];
  EXPECT_DOUBLE_EQ(span.start_ns, 100 * kUsNs);
  EXPECT_DOUBLE_EQ(span.moves_ns, 150 * kUsNs);
  EXPECT_DOUBLE_EQ(span.end_ns, 170 * kUsNs);
  ASSERT_EQ(job.ranks[0].communication.size(), 1U);
  EXPECT_EQ(job.ranks[0].communication[0].group, 0);
  EXPECT_EQ(job.ranks[0].communication[0].kind, CollectiveKind::all_reduce);
}

TEST(Play, TheCriticalPathGoesThroughTheRankThatCameLast) {
  HandMadeRank fast = plain_rank(0, 100), late = plain_rank(1, 150);
  const JobTime job = play_free({fast.played(), late.played()});
  const std::vector<PlayedOperation> expected = {{0, 2}, {0, 1}, {1, 0}};
  EXPECT_EQ(job.critical_path, expected);
}

TEST(Play, ARankThatIsTwiceAsSlowHoldsAll) {
  std::deque<HandMadeRank> ranks;
  std::vector<PlayedRank> played;
  for (int64_t number = 0; number < 4; ++number) {
    HandMadeRank& rank = ranks.emplace_back(number);
    const uint32_t group = rank.group("world", {0, 1, 2, 3});
    for (int layer = 0; layer < 5; ++layer) {
      rank.compute(number == 2 ? 200 : 100);
      rank.all_reduce_after_compute(group, 10);
      rank.after(0, 1);
    }
    played.push_back(rank.played());
  }
  const JobTime job = play(played, free_host());
  EXPECT_DOUBLE_EQ(job.step_ns, 5 * 210 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[0].waiting_ns, 5 * 100 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[2].waiting_ns, 0);
}

TEST(Play, ASlowHostHoldsAll) {
  HandMadeRank fast = plain_rank(0, 100), slow = plain_rank(1, 100);
  slow.host_waits(0);
  const JobTime job = play_free({fast.played(), slow.played(50)});
  EXPECT_DOUBLE_EQ(job.step_ns, 180 * kUsNs) << "50 on the host, 130 on the card";
  EXPECT_DOUBLE_EQ(job.gpu_ns, 130 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[0].waiting_ns, 50 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[1].waiting_ns, 0);
  EXPECT_DOUBLE_EQ(job.ranks[1].idle_ns, 50 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[1].schedule.host_ns, 50 * kUsNs);
}

TEST(Play, CommunicationDuringComputeIsHidden) {
  std::deque<HandMadeRank> ranks;
  std::vector<PlayedRank> played;
  for (int64_t number = 0; number < 2; ++number) {
    HandMadeRank& rank = ranks.emplace_back(number);
    const uint32_t group = rank.group("world", {0, 1});
    rank.compute(100);
    rank.all_reduce_after_compute(group, 80);
    rank.compute(50);  // at the same time
    rank.after(0, 1);
    rank.compute(10);
    played.push_back(rank.played());
  }
  const JobTime job = play(played, free_host());
  EXPECT_DOUBLE_EQ(job.step_ns, 190 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[0].hidden_ns, 50 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[0].exposed_ns, 30 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[0].compute_ns, 160 * kUsNs);
}

// Between two kernels the host needs 90 us. A collective meanwhile costs nothing, unless the host waits for it.
TEST(Play, WhatTheHostLaunchesTooLateDidNotWaitForCommunication) {
  for (const bool host_waits : {false, true}) {
    HandMadeRank rank(0);
    const uint32_t group = rank.group("world", {0});
    rank.compute(10);
    rank.all_reduce_after_compute(group, 30);
    if (host_waits) rank.host_waits(1);
    rank.asked_us = 90;
    rank.compute(10);
    rank.host_waits(0);
    const JobTime job = play_free({rank.played(90)});
    const RankTime& time = job.ranks[0];
    EXPECT_DOUBLE_EQ(time.compute_ns, 20 * kUsNs);
    EXPECT_DOUBLE_EQ(time.idle_ns, (host_waits ? 90 : 80) * kUsNs);
    EXPECT_DOUBLE_EQ(time.exposed_ns, (host_waits ? 30 : 0) * kUsNs);
    EXPECT_DOUBLE_EQ(time.hidden_ns, (host_waits ? 0 : 30) * kUsNs);
    EXPECT_DOUBLE_EQ(job.step_ns, (host_waits ? 140 : 100) * kUsNs);
  }
}

// DistributedDataParallel: a bucket of gradients is reduced while the backward goes on, and the optimizer waits for all.
JobTime buckets(double reduce_us) {
  std::deque<HandMadeRank> ranks;
  std::vector<PlayedRank> played;
  for (int64_t number = 0; number < 2; ++number) {
    HandMadeRank& rank = ranks.emplace_back(number);
    const uint32_t group = rank.group("world", {0, 1});
    rank.compute(200);
    for (int bucket = 0; bucket < 4; ++bucket) {
      rank.compute(100);
      rank.all_reduce_after_compute(group, reduce_us);
    }
    rank.after(0, 1);
    rank.compute(10);
    played.push_back(rank.played());
  }
  return play(played, free_host());
}

TEST(Play, BucketsAreReducedDuringTheBackward) {
  const JobTime fast = buckets(80), slow = buckets(150);
  EXPECT_DOUBLE_EQ(fast.step_ns, (200 + 400 + 80 + 10) * kUsNs) << "the last one is exposed";
  EXPECT_DOUBLE_EQ(fast.ranks[0].exposed_ns, 80 * kUsNs);
  EXPECT_DOUBLE_EQ(fast.ranks[0].hidden_ns, 240 * kUsNs);
  EXPECT_DOUBLE_EQ(slow.step_ns, (200 + 100 + 600 + 10) * kUsNs) << "all four after the first layer";
  EXPECT_DOUBLE_EQ(slow.ranks[0].exposed_ns, 300 * kUsNs);
  EXPECT_DOUBLE_EQ(slow.ranks[1].hidden_ns, 300 * kUsNs);
}

// 100 us of work during a collective that holds a fifth of the card: 80 us of it are done when the collective ends.
TEST(Play, ACollectiveTakesAPartOfTheCardFromOtherKernels) {
  HandMadeRank one(0), other(1);
  for (HandMadeRank* rank : {&one, &other}) {
    const uint32_t group = rank->group("world", {0, 1});
    rank->all_reduce_after_compute(group, 100, {.multiprocessors = 0.2});
    rank->compute(100);
    rank->after(0, 1);
    rank->host_waits(0);
  }
  EXPECT_DOUBLE_EQ(play_free({one.played(), other.played()}).step_ns, 120 * kUsNs);
}

// 60 of 100 us of work are done when the last rank comes. Memory limits this kernel, so it is slowed from then on, by a fifth.
TEST(Play, ACollectiveThatMovesUsesMemory) {
  HandMadeRank fast(0), late(1);
  for (HandMadeRank* rank : {&fast, &late}) {
    const uint32_t group = rank->group("world", {0, 1});
    if (rank == &late) rank->compute(60, 1);
    rank->collective(group, 200, 1, CollectiveKind::all_reduce, 1000, {.multiprocessors = 0.5, .memory = 0.2});
    if (rank == &fast) rank->compute(100);
    rank->host_waits(1);
    rank->host_waits(0);
  }
  PlayedRank limited = fast.played();
  limited.durations[fast.step().operations[1].shape].bound = Bound::memory;
  const JobTime job = play_free({limited, late.played()});
  EXPECT_DOUBLE_EQ(job.ranks[0].spans[1].end_ns - job.ranks[0].spans[1].start_ns, (60 + 40 / 0.8) * kUsNs);
}

// 60 of 100 us of work are done when the last rank comes. The rest waits until all bytes have moved.
TEST(Play, ACollectiveWithFencesStopsOtherKernels) {
  HandMadeRank fast(0), late(1);
  for (HandMadeRank* rank : {&fast, &late}) {
    const uint32_t group = rank->group("world", {0, 1});
    if (rank == &late) rank->compute(60, 1);
    rank->collective(group, 200, 1, CollectiveKind::all_reduce, 1000, {.memory = 1, .moving = 1});
    if (rank == &fast) rank->compute(100);
    rank->host_waits(1);
    rank->host_waits(0);
  }
  const RankTime time = play_free({fast.played(), late.played()}).ranks[0];
  EXPECT_DOUBLE_EQ(time.spans[1].end_ns - time.spans[1].start_ns, 300 * kUsNs);
  EXPECT_DOUBLE_EQ(time.compute_ns, 100 * kUsNs);
  EXPECT_DOUBLE_EQ(time.exposed_ns, 200 * kUsNs);
  EXPECT_DOUBLE_EQ(time.hidden_ns, 0);
}

// Its kernel spins while it waits: all 100 us of the fast rank's work run meanwhile.
TEST(Play, ACollectiveThatWaitsHoldsItsPartToo) {
  HandMadeRank fast(0), late(1);
  for (HandMadeRank* rank : {&fast, &late}) {
    const uint32_t group = rank->group("world", {0, 1});
    if (rank == &late) rank->compute(300);
    rank->all_reduce_after_compute(group, 100, {.multiprocessors = 0.5});
    rank->compute(100);
    rank->host_waits(1);
    rank->host_waits(0);
  }
  const JobTime job = play_free({fast.played(), late.played()});
  EXPECT_DOUBLE_EQ(job.ranks[0].spans[1].end_ns - job.ranks[0].spans[1].start_ns, 200 * kUsNs);
  EXPECT_DOUBLE_EQ(job.step_ns, 450 * kUsNs) << "during the last rank's collective only 50 us of its 100 are done";
}

TEST(Play, CopiesOfCopyEnginesAreNotSlowed) {
  HandMadeRank one(0), other(1);
  for (HandMadeRank* rank : {&one, &other}) {
    const uint32_t group = rank->group("world", {0, 1});
    rank->all_reduce_after_compute(group, 100, {.multiprocessors = 0.5});
    const size_t copy = rank->compute(100);
    rank->step().shapes[rank->step().operations[copy].shape].kind = OperationKind::copy;
    rank->step().shapes[rank->step().operations[copy].shape].from_host = true;
    rank->host_waits(1);
    rank->host_waits(0);
  }
  EXPECT_DOUBLE_EQ(play_free({one.played(), other.played()}).step_ns, 100 * kUsNs);
}

// Rank 0 is in both groups, and its link carries both at the same time. The others' links would be free.
struct TwoGroups {
  std::deque<HandMadeRank> ranks;
  std::vector<PlayedRank> played;
  explicit TwoGroups(int64_t nodes, double link = 1, double late_us = 0) {
    for (int64_t number = 0; number < 3; ++number) {
      HandMadeRank& rank = ranks.emplace_back(number);
      if (number != 2) rank.collective(rank.group("tensor", {0, 1}), 100, 1, CollectiveKind::all_reduce, 1000, {.link = link});
      if (number == 0) rank.compute(late_us, 2);
      if (number != 1) rank.collective(rank.group("data", {0, 2}), 100, 2, CollectiveKind::reduce_scatter, 1000, {.link = link}, nodes);
      rank.host_waits(1);
      rank.host_waits(2);
      played.push_back(rank.played());
    }
  }
};

TEST(Play, TwoGroupsShareALink) {
  EXPECT_DOUBLE_EQ(play(TwoGroups(1).played, free_host()).step_ns, 200 * kUsNs);
  EXPECT_DOUBLE_EQ(play(TwoGroups(2).played, free_host()).step_ns, 100 * kUsNs) << "one in the node, one over the network";
  EXPECT_DOUBLE_EQ(play(TwoGroups(1, 0.5).played, free_host()).step_ns, 100 * kUsNs) << "each needs half of the link";
  EXPECT_DOUBLE_EQ(play(TwoGroups(1, 0.75).played, free_host()).step_ns, 150 * kUsNs);
}

TEST(Play, ACollectiveGetsTheLinkBackWhenTheOtherEnds) {
  const JobTime job = play(TwoGroups(1, 1, 40).played, free_host());
  // 40 alone; both at half their rate until the first has moved its other 60; 40 of the second are left.
  EXPECT_DOUBLE_EQ(job.ranks[1].spans[0].end_ns, 160 * kUsNs);
  EXPECT_DOUBLE_EQ(job.step_ns, 200 * kUsNs);
}

// ---- messages ------------------------------------------------------------------------------------------------------------

TEST(Play, AReceiveWaitsForItsSend) {
  HandMadeRank sender(0), receiver(1);
  const uint32_t out = sender.group("pipe", {0, 1}), in = receiver.group("pipe", {0, 1});
  sender.compute(100);
  sender.after(1, 0);
  sender.messages(out, {{1, 500, false}}, 10);
  sender.after(0, 1);
  receiver.messages(in, {{0, 500, true}}, 10);
  receiver.after(0, 1);
  receiver.compute(30);
  const JobTime job = play_free({sender.played(), receiver.played()});
  EXPECT_DOUBLE_EQ(job.step_ns, 110 * kUsNs);
  EXPECT_DOUBLE_EQ(job.ranks[1].waiting_ns, 70 * kUsNs) << "100 less the 30 that it computes meanwhile";
  EXPECT_DOUBLE_EQ(job.ranks[1].exposed_ns, 10 * kUsNs);
  ASSERT_EQ(job.messages.size(), 1U);
  EXPECT_EQ(job.messages[0].from, (PlayedOperation{0, 1}));
  EXPECT_EQ(job.messages[0].to, (PlayedOperation{1, 0}));
}

// The buffers hold two of the three messages: the sender goes on at once twice, and waits for the first receive with the third.
TEST(Play, ASendThatFitsIntoBuffersDoesNotWaitForItsReceive) {
  HandMadeRank sender(0), receiver(1);
  const uint32_t out = sender.group("pipe", {0, 1}), in = receiver.group("pipe", {0, 1});
  std::vector<size_t> sends, receives;
  for (int i = 0; i < 3; ++i) sends.push_back(sender.messages(out, {{1, 500, false}}, 10, 1, {.buffered_bytes = 1000}));
  receiver.compute(100, 1);
  for (int i = 0; i < 3; ++i) receives.push_back(receiver.messages(in, {{0, 500, true}}, 10, 1, {.buffered_bytes = 1000}));
  sender.host_waits(1);
  receiver.host_waits(1);
  const JobTime job = play_free({sender.played(), receiver.played()});
  const auto end_ns = [&](size_t rank, size_t operation) { return job.ranks[rank].spans[operation].end_ns - job.ranks[rank].begin_ns; };
  EXPECT_DOUBLE_EQ(end_ns(0, sends[0]), 10 * kUsNs);
  EXPECT_DOUBLE_EQ(end_ns(0, sends[1]), 20 * kUsNs);
  EXPECT_GT(end_ns(0, sends[2]), 100 * kUsNs);
  EXPECT_DOUBLE_EQ(end_ns(1, receives[0]), 110 * kUsNs);
  EXPECT_DOUBLE_EQ(end_ns(1, receives[2]), 130 * kUsNs);
  EXPECT_DOUBLE_EQ(job.step_ns, 130 * kUsNs);
  EXPECT_EQ(job.messages.size(), 3U);
}

TEST(Play, CallsOfOneGroupAreOneOperation) {
  std::deque<HandMadeRank> ranks;
  std::vector<PlayedRank> played;
  for (int64_t number = 0; number < 3; ++number) {
    HandMadeRank& rank = ranks.emplace_back(number);
    const uint32_t ring = rank.group("ring", {0, 1, 2});
    if (number == 1) rank.compute(50);
    rank.after(1, 0);
    rank.messages(ring, {{(number + 1) % 3, 100, false}, {(number + 2) % 3, 100, true}}, 20);
    rank.host_waits(1);
    played.push_back(rank.played());
  }
  const JobTime job = play(played, free_host());
  EXPECT_DOUBLE_EQ(job.ranks[0].spans[0].end_ns, 70 * kUsNs) << "it sends to the late one";
  EXPECT_DOUBLE_EQ(job.ranks[2].spans[0].end_ns, 70 * kUsNs) << "it receives from the late one";
  EXPECT_DOUBLE_EQ(job.step_ns, 70 * kUsNs);
}

TEST(Play, MessagesOfOneOperationShareTheLinkAndTakeItsTime) {
  std::deque<HandMadeRank> ranks;
  std::vector<PlayedRank> played;
  for (int64_t number = 0; number < 4; ++number) {
    HandMadeRank& rank = ranks.emplace_back(number);
    std::vector<Message> list;
    for (int64_t peer = 0; peer < 4; ++peer) {
      list.push_back({peer, 100 * (1 + (peer + number) % 2), false});
      list.push_back({peer, 100 * (1 + (peer + number) % 2), true});
    }
    rank.messages(rank.group("experts", {0, 1, 2, 3}), list, 60);
    rank.host_waits(1);
    played.push_back(rank.played());
  }
  EXPECT_NEAR(play(played, free_host()).step_ns, 60 * kUsNs, 1);
}

TEST(Play, ImaginedRanksAreWaitedForByNobody) {
  HandMadeRank one(0), other(2);
  for (HandMadeRank* rank : {&one, &other}) {
    const uint32_t group = rank->group("world", {0, 1, 2, 3});
    const uint32_t own =
        rank->group(rank == &one ? "left" : "right", rank == &one ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3});
    rank->collective(own, 30);
    rank->collective(group, 20);
    rank->messages(own, {{rank == &one ? 1 : 3, 100, false}}, 10);
    rank->host_waits(1);
  }
  const JobTime job = play_free({one.played(), other.played()});
  EXPECT_DOUBLE_EQ(job.step_ns, 60 * kUsNs);
  EXPECT_EQ(job.ranks[0].imagined_messages, 1);
}

// Stages 1 and 2 of four have the same role, and only stage 1 is there. It sends to the last stage in place of stage 2.
TEST(Play, ARankStandsForAnImaginedOneOfItsRole) {
  HandMadeRank first(0), middle(1), last(3);
  for (HandMadeRank* rank : {&first, &middle, &last}) {
    const uint32_t pipe = rank->group("pipe", {0, 1, 2, 3});
    if (rank != &first) {
      rank->messages(pipe, {{rank == &last ? 2 : 0, 100, true}}, 1);
      rank->after(0, 1);
    }
    rank->compute(rank == &middle ? 500 : 100);
    if (rank == &last) continue;
    rank->after(1, 0);
    rank->messages(pipe, {{rank == &first ? 1 : 2, 100, false}}, 1);
    rank->after(0, 1);
  }
  const JobTime job = play_free({first.played(), middle.played(), last.played()});
  for (const RankTime& rank : job.ranks) EXPECT_EQ(rank.imagined_messages, 0);
  EXPECT_GT(job.ranks[2].waiting_ns, 350 * kUsNs);
}

// Two pipelines of two stages, {0, 2} and {1, 3}: the first stage of one and the second of the other.
TEST(Play, ARankStandsForTheOneInItsPlaceOfAnotherGroup) {
  HandMadeRank first(0), second(3);
  first.compute(100);
  first.after(1, 0);
  first.messages(first.group("pipe 0", {0, 2}), {{2, 100, false}}, 10);
  second.messages(second.group("pipe 1", {1, 3}), {{1, 100, true}}, 10);
  second.host_waits(1);
  const JobTime job = play_free({first.played(), second.played()});
  EXPECT_EQ(job.ranks[0].imagined_messages + job.ranks[1].imagined_messages, 0);
  EXPECT_DOUBLE_EQ(job.ranks[1].spans[0].end_ns, job.ranks[0].spans[1].end_ns);
  EXPECT_GT(job.ranks[1].waiting_ns, 80 * kUsNs);
}

// ---- what does not fit together ------------------------------------------------------------------------------------------

std::string error_of(const std::vector<PlayedRank>& ranks) {
  try {
    play(ranks, free_host());
  } catch (const Error& error) {
    return error.what() + std::string(" | ") + error.where;
  }
  return "no error";
}

TEST(Play, DifferentCollectivesAreAnError) {
  HandMadeRank one(4), other(7);
  one.collective(one.group("data", {4, 7}), 10);
  other.collective(other.group("data", {4, 7}), 10, 1, CollectiveKind::all_gather);
  EXPECT_EQ(error_of({one.played(), other.played()}),
            "ranks make different collectives in the same place: rank 4 all_reduce of 1000 bytes, rank 7 all_gather of 1000 bytes | group "
            "\"data\", collective 1 of the step");
  HandMadeRank more(7);
  more.collective(more.group("data", {4, 7}), 10, 1, CollectiveKind::all_reduce, 2000);
  EXPECT_NE(error_of({one.played(), more.played()}).find("rank 7 all_reduce of 2000 bytes"), std::string::npos);
}

TEST(Play, UnevenAllToAllsFitTogether) {
  HandMadeRank one(0), other(1);
  one.collective(one.group("experts", {0, 1}), 10, 1, CollectiveKind::all_to_all, 1000);
  other.collective(other.group("experts", {0, 1}), 40, 1, CollectiveKind::all_to_all, 4000);
  one.host_waits(1);
  other.host_waits(1);
  EXPECT_DOUBLE_EQ(play_free({one.played(), other.played()}).step_ns, 40 * kUsNs) << "at the pace of the slowest";
}

TEST(Play, FewerCollectivesAreAnError) {
  HandMadeRank one = plain_rank(0, 10), other = plain_rank(1, 10), none(1);
  one.collective(0, 10);
  EXPECT_EQ(error_of({one.played(), other.played()}),
            "rank 0 makes 2 collectives in a step, rank 1 makes 1: the job would hang | group \"world\"");
  none.compute(10);
  EXPECT_EQ(error_of({one.played(), none.played()}),
            "rank 0 makes 2 collectives in a step, rank 1 makes 0: the job would hang | group \"world\"");
}

TEST(Play, MessagesThatDoNotFitAreErrors) {
  HandMadeRank one(0), other(1);
  const uint32_t out = one.group("pipe", {0, 1}), in = other.group("pipe", {0, 1});
  one.messages(out, {{1, 100, false}}, 1);
  other.compute(1);
  EXPECT_EQ(error_of({one.played(), other.played()}),
            "rank 0 sends 1 messages to rank 1 in a step, which receives 0: the job would hang | group \"pipe\"");
  other.messages(in, {{0, 200, true}}, 1);
  EXPECT_EQ(error_of({one.played(), other.played()}),
            "rank 0 sends 100 bytes to rank 1, which receives 200 | group \"pipe\", message 1 of the step");
}

TEST(Play, RanksThatWaitForEachOtherAreAnError) {
  HandMadeRank one(0), other(1);
  for (HandMadeRank* rank : {&one, &other}) {
    const uint32_t a = rank->group("a", {0, 1}), b = rank->group("b", {0, 1});
    rank->collective(rank == &one ? a : b, 10);
    rank->collective(rank == &one ? b : a, 10);
  }
  EXPECT_EQ(
      error_of({one.played(), other.played()}),
      "the ranks wait for each other forever: rank 0 in all_reduce of group \"a\", rank 1 in all_reduce of group \"b\" | one clock for "
      "all captures");
  EXPECT_EQ(error_of({one.played(), one.played()}), "rank 0 is there twice | captures of one job");
}

// ---- properties ----------------------------------------------------------------------------------------------------------

// A rank that is alone in its groups: its communication only takes time.
TEST(Play, OneRankTakesTheTimeOfItsSchedule) {
  std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed,cert-msc51-cpp): the same each time
  const auto below = [&](uint32_t most) { return static_cast<uint32_t>(random() % most); };
  for (int round = 0; round < 100; ++round) {
    HandMadeRank rank(0);
    const uint32_t group = rank.group("world", {0});
    for (int i = 0; i < 60; ++i) {
      rank.asked_us += below(8);
      const uint32_t stream = below(3);
      switch (below(6)) {
        case 0:
          rank.after(stream, below(3));
          break;
        case 1:
          if (below(4) == 0) rank.host_waits(stream);
          break;
        case 2:
          rank.collective(group, below(50), stream);
          break;
        default:
          rank.compute(below(30), stream);
      }
    }
    const PlayedRank played = rank.played(rank.asked_us + 5);
    const JobTime job = play({played}, step_constants());
    std::vector<GpuTimeline::Span> spans;
    const Schedule alone = schedule(rank.step(), played.durations, step_constants(), 1, &spans);
    EXPECT_NEAR(job.step_ns, alone.step_ns, 0.5);
    EXPECT_NEAR(job.gpu_ns, alone.gpu_ns, 0.5);
    EXPECT_DOUBLE_EQ(job.ranks[0].schedule.host_ns, alone.host_ns);
    EXPECT_NEAR(parts_ns(job.ranks[0]), job.step_ns, 1);
    for (size_t i = 0; i < spans.size(); ++i) EXPECT_NEAR(job.ranks[0].spans[i].end_ns, spans[i].end_ns, 0.5);
  }
}

// Random kernels, collectives and messages of random groups, in one order on all ranks.
struct RandomJob {
  std::deque<HandMadeRank> ranks;
  std::vector<std::pair<size_t, size_t>> meetings;  // of the same collective or message: begin and end of a range in `parts`
  std::vector<PlayedOperation> parts;

  explicit RandomJob(unsigned seed) : random_(seed) {
    for (int64_t number = 0; number < 4; ++number) {
      HandMadeRank& rank = ranks.emplace_back(number);
      rank.group("world", {0, 1, 2, 3});
      rank.group(number < 2 ? "low" : "high", number < 2 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3});
    }
    for (int i = 0; i < 60; ++i) add_one();
  }

  std::vector<PlayedRank> played() {
    std::vector<PlayedRank> out;
    out.reserve(ranks.size());
    for (HandMadeRank& rank : ranks) out.push_back(rank.played(rank.asked_us + 3));
    return out;
  }

 private:
  uint32_t below(uint32_t most) { return static_cast<uint32_t>(random_() % most); }

  void add_one() {
    const size_t first = parts.size(), one = below(4), other = (one + 1 + below(3)) % 4;
    const uint32_t what = below(3), group = below(2), us = below(40);
    for (size_t r = 0; r < ranks.size(); ++r) {
      HandMadeRank& rank = ranks[r];
      rank.asked_us += below(4);
      for (uint32_t kernels = below(3); kernels > 0; --kernels) rank.compute(below(30));
      if (below(3) == 0) rank.after(below(3), below(3));
      if (below(20) == 0) rank.host_waits(below(3));
      const uint32_t stream = 1 + below(2);
      if (what == 0) continue;
      if (what == 1 && (group == 0 || r / 2 == one / 2))
        parts.push_back({r, rank.collective(group, us, stream, CollectiveKind::all_reduce, 1000, {.multiprocessors = 0.1 * below(5)})});
      if (what == 2 && (r == one || r == other))
        parts.push_back({r, rank.messages(0, {{ranks_of(r == one ? other : one), 100, r == one}}, us, stream)});
    }
    if (parts.size() > first) meetings.emplace_back(first, parts.size());
  }
  static int64_t ranks_of(size_t r) { return static_cast<int64_t>(r); }

  std::mt19937 random_;
};

TEST(Play, InRandomJobsAllOfAMeetingEndTogether) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    RandomJob random(seed);
    const JobTime job = play(random.played(), step_constants());
    for (const RankTime& rank : job.ranks) EXPECT_NEAR(parts_ns(rank), rank.schedule.step_ns, 1);
    for (const auto& [first, end] : random.meetings) {
      const auto span_of = [&](size_t part) { return job.ranks[random.parts[part].rank].spans[random.parts[part].operation]; };
      double came_ns = span_of(first).start_ns;
      for (size_t part = first; part < end; ++part) came_ns = std::max(came_ns, span_of(part).start_ns);
      for (size_t part = first; part < end; ++part) {
        EXPECT_NEAR(span_of(part).end_ns, span_of(first).end_ns, 0.1);
        EXPECT_NEAR(span_of(part).moves_ns, came_ns, 0.1);
      }
    }
  }
}

TEST(Play, TheCriticalPathHasNoHolesButTheHosts) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    RandomJob random(seed);
    const JobTime job = play(random.played(), free_host());
    ASSERT_FALSE(job.critical_path.empty());
    double after_ns = std::numeric_limits<double>::infinity();
    for (const PlayedOperation& at : job.critical_path) {
      const OperationSpan& span = job.ranks[at.rank].spans[at.operation];
      EXPECT_LE(span.end_ns, after_ns + 0.1);
      after_ns = span.moves_ns;
    }
  }
}

// Random ranks that begin each step together, with engines and links that nothing shares: one more wait makes no step shorter.
TEST(Play, AWaitNeverMakesAJobFaster) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    double without_ns = 0;
    for (const bool waits : {false, true}) {
      std::mt19937 random(seed);
      const auto below = [&](uint32_t most) { return static_cast<uint32_t>(random() % most); };
      std::deque<HandMadeRank> ranks;
      for (int64_t number = 0; number < 3; ++number) ranks.emplace_back(number);
      for (HandMadeRank& rank : ranks) rank.group("world", {0, 1, 2});
      for (int i = 0; i < 20; ++i) {
        for (HandMadeRank& rank : ranks) {
          rank.asked_us += below(4);
          if (below(3) == 0) rank.after(0, 1);
          rank.compute(below(40));
          if (const bool here = below(15) == 0; here && waits) rank.after(0, 1), rank.host_waits(0);
        }
        if (below(2) == 0) continue;
        for (HandMadeRank& rank : ranks) rank.all_reduce_after_compute(0, 10);
      }
      std::vector<PlayedRank> played;
      for (HandMadeRank& rank : ranks) {
        rank.all_reduce_after_compute(0, 1);
        rank.host_waits(0);
        rank.host_waits(1);
        played.push_back(rank.played(rank.asked_us));
      }
      const JobTime job = play(played, free_host());
      EXPECT_GE(job.step_ns, without_ns - 0.5);
      without_ns = job.step_ns;
    }
  }
}

}  // namespace
}  // namespace gpucast

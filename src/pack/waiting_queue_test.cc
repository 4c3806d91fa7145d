#include "src/pack/waiting_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/base/bytes.h"
#include "src/pack/policy.h"

namespace gpucast::pack {
namespace {

Job waiting_job(int64_t gib, int cards = 1) {
  Job out;
  out.cards = cards;
  out.figures = {1e8, gib * kGiB, 0.5, 0.5, 0.5, {}};
  return out;
}

struct IdleP40s {
  std::vector<Job> jobs;
  Cluster cluster = parse_cluster("2xp40", SharingMode::mps);
  std::vector<const Job*> by_arrival;
  ClusterState state;
  explicit IdleP40s(std::vector<Job> given) : jobs(std::move(given)) {
    for (const Job& job : jobs) by_arrival.push_back(&job);
    state = idle_cluster(cluster, sharing_rules(kMemoryPolicy, cluster.mode, pack_constants()), by_arrival);
  }
};

TEST(WaitingQueue, FindsTheFirstThatFits) {
  const IdleP40s setup({waiting_job(20), waiting_job(4), waiting_job(8, 2), waiting_job(2), waiting_job(100)});
  WaitingQueue queue(setup.by_arrival, &setup.state.types, false);
  EXPECT_TRUE(queue.empty());
  for (uint32_t job = 0; job < 4; ++job) queue.add(job);
  std::vector<WaitingQueue::Line>& lines = queue.lines_for(setup.state.types.front());
  ASSERT_EQ(lines.size(), 2U) << "single jobs, and gangs of two";
  EXPECT_EQ(lines[0].jobs, (std::vector<uint32_t>{0, 1, 3})) << "no P40 holds the last job";
  const auto first_within = [&](int64_t gib) { return lines[0].demands.find_first(negated({gib * kGiB, kWholeCard})); };
  EXPECT_EQ(first_within(24), 0U);
  EXPECT_EQ(first_within(6), 1U);
  EXPECT_EQ(first_within(1), FitTree::kNone);
  queue.count_start(1);
  EXPECT_FALSE(queue.contains(1));
  EXPECT_EQ(first_within(6), 2U);
  EXPECT_EQ(lines[0].waiting, 2);
  EXPECT_EQ(lines[1].waiting, 1);
}

TEST(WaitingQueue, TheOldestIsOvertakenACertainNumberOfTimes) {
  std::vector<Job> jobs(kMostOvertakes + 3, waiting_job(1));
  const IdleP40s setup(std::move(jobs));
  WaitingQueue queue(setup.by_arrival, &setup.state.types, true);
  queue.add(1);
  queue.add(0);
  EXPECT_EQ(queue.oldest_job(), 0U);
  for (uint32_t job = 2; job < kMostOvertakes + 2; ++job) {
    EXPECT_FALSE(queue.only_oldest_may_start());
    queue.count_start(job);  // it never waited
  }
  EXPECT_TRUE(queue.only_oldest_may_start());
  queue.count_start(0);
  EXPECT_FALSE(queue.only_oldest_may_start());
  EXPECT_EQ(queue.oldest_job(), 1U);
}

}  // namespace
}  // namespace gpucast::pack

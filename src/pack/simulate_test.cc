#include "src/pack/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "gpucast/error.h"
#include "src/base/bytes.h"
#include "src/pack/waiting_queue.h"

namespace gpucast::pack {
namespace {

Job job_of(const char* name, double seconds, int64_t bytes, double occupancy, double nvml, int cards = 1, double arrival_s = 0) {
  Job out;
  out.name = name;
  out.arrival_ns = static_cast<int64_t>(arrival_s * 1e9);
  out.steps = 100;
  out.cards = cards;
  out.figures = {seconds * 1e7, bytes, occupancy, occupancy, nvml, std::nullopt};
  return out;
}

Plan plan_of(const std::vector<Job>& jobs, const char* cards, const Policy& policy, SharingMode mode = SharingMode::mps,
             bool fair = false) {
  PackOptions options;
  options.policy = &policy;
  options.fair = fair;
  return simulate(jobs, parse_cluster(cards, mode), options);
}

// The first job's time with the second one as a neighbour, in turns, over its time alone.
double in_turns(const Job& one, const Job& other) {
  const std::vector mixes = {kernel_mix_of(one.figures), kernel_mix_of(other.figures)};
  return slowdowns(mixes, find_gpu("a10"), SharingMode::timeslice)[0].expected;
}

TEST(Simulate, SlotRunsOneJobAfterAnother) {
  const std::vector<Job> jobs = {job_of("a", 10, kGiB, 0.2, 0.5), job_of("b", 20, kGiB, 0.2, 0.5), job_of("c", 5, kGiB, 0.2, 0.5)};
  const Plan plan = plan_of(jobs, "2xp40", kSlotPolicy);
  EXPECT_EQ(plan.jobs[0].end_ns, 10'000'000'000);
  EXPECT_EQ(plan.jobs[1].end_ns, 20'000'000'000);
  EXPECT_EQ(plan.jobs[2].start_ns, 10'000'000'000);
  EXPECT_EQ(plan.jobs[2].end_ns, 15'000'000'000);
  EXPECT_EQ(plan.makespan_ns, 20'000'000'000);
  EXPECT_DOUBLE_EQ(plan.mean_jct_ns, 15e9);
  EXPECT_DOUBLE_EQ(plan.mean_queue_ns, 10e9 / 3);
  EXPECT_DOUBLE_EQ(plan.utilization, 35.0 / 40);
  EXPECT_DOUBLE_EQ(plan.nvml, 35.0 / 80);
  EXPECT_NEAR(plan.gpu_hours, 35.0 / 3600, 1e-12);
}

// 0.6 and 0.4 fill a card, so the third job waits. The first two run at full speed, because they do not need more than the card has.
TEST(Simulate, OccupancyFillsTheWholeCard) {
  const std::vector<Job> jobs = {job_of("a", 10, kGiB, 0.6, 1), job_of("b", 10, kGiB, 0.4, 1), job_of("c", 10, kGiB, 0.1, 1)};
  const Plan plan = plan_of(jobs, "p40", kOccupancyPolicy);
  EXPECT_EQ(plan.jobs[1].start_ns, 0);
  EXPECT_EQ(plan.jobs[1].reason, Reason::share_fits);
  EXPECT_EQ(plan.jobs[1].neighbours, std::vector<uint32_t>{0});
  EXPECT_EQ(plan.jobs[2].start_ns, std::min(plan.jobs[0].end_ns, plan.jobs[1].end_ns));
  EXPECT_EQ(plan.makespan_ns, plan.jobs[2].end_ns);
}

// When the short job is done, the other one continues at full speed; it has done 10 of its 20 s by then.
TEST(Simulate, TimeSlicesSlowAndReleaseNeighbours) {
  const std::vector<Job> jobs = {job_of("short", 10, kGiB, 0.1, 0.8), job_of("long", 20, kGiB, 0.1, 0.8)};
  const Plan plan = plan_of(jobs, "a10", kOccupancyPolicy, SharingMode::timeslice);
  const double slower = in_turns(jobs[0], jobs[1]);
  EXPECT_GT(slower, 1.1);
  EXPECT_NEAR(static_cast<double>(plan.jobs[0].end_ns), slower * 10e9, 2);
  EXPECT_NEAR(static_cast<double>(plan.jobs[1].end_ns), slower * 10e9 + 10e9, 2);
  EXPECT_NEAR(plan.jobs[1].slowdown, (slower + 1) / 2, 1e-9);
  EXPECT_NEAR(plan.nvml, (10 * slower * std::min(1.0, 1.6 / slower) + 10 * 0.8) / (10 * slower + 10), 1e-9);
}

TEST(Simulate, MemoryBlindPoliciesLoseRunsThatMemoryAwareOnesKeep) {
  const std::vector<Job> jobs = {job_of("a", 10, 15 * kGiB, 0.2, 0.3), job_of("b", 10, 15 * kGiB, 0.2, 0.3)};
  const Plan blind = plan_of(jobs, "p40", kOccupancyPolicy);
  EXPECT_EQ(blind.out_of_memory_runs, 1);
  EXPECT_EQ(blind.jobs[1].reason, Reason::alone_after_out_of_memory);
  EXPECT_EQ(blind.jobs[1].start_ns, 10'000'000'000);
  EXPECT_EQ(blind.finished, 2);
  for (const Policy* policy : {&kMemoryPolicy, &kGpucastPolicy}) {
    const Plan plan = plan_of(jobs, "p40", *policy);
    EXPECT_EQ(plan.out_of_memory_runs, 0);
    EXPECT_EQ(plan.jobs[1].start_ns, 10'000'000'000);
  }
}

TEST(Simulate, AJobBeyondEveryCard) {
  const std::vector<Job> jobs = {job_of("huge", 10, 30 * kGiB, 0.2, 0.3), job_of("wide", 10, kGiB, 0.2, 0.3, 3)};
  const Plan blind = plan_of(jobs, "2xp40", kSlotPolicy);
  EXPECT_EQ(blind.jobs[0].outcome, Outcome::out_of_memory);
  EXPECT_EQ(blind.out_of_memory_jobs, 1);
  EXPECT_EQ(blind.jobs[1].outcome, Outcome::never_fits);
  const Plan plan = plan_of(jobs, "2xp40", kGpucastPolicy);
  EXPECT_EQ(plan.jobs[0].outcome, Outcome::never_fits);
  EXPECT_EQ(plan.out_of_memory_runs, 0);
  EXPECT_EQ(plan.makespan_ns, 0);
  // In a cluster with one card that is large enough, it runs on that card.
  EXPECT_EQ(plan_of(jobs, "2xp40,a100-80", kGpucastPolicy).jobs[0].cards, std::vector<uint32_t>{2});
}

TEST(Simulate, GpucastChoosesTheNeighbourThatSlowsLeast) {
  Job base = job_of("base", 100, kGiB, 0.5, 1);
  Job hungry = job_of("bandwidth", 10, kGiB, 0.3, 1, 1, 1);
  Job calm = job_of("arithmetic", 10, kGiB, 0.3, 1, 1, 1);
  base.figures.mix = KernelMix{.busy = 1, .sm_active = 0.5, .dram = 0.9, .step_ns = 1e9};
  hungry.figures.mix = KernelMix{.busy = 1, .sm_active = 0.9, .dram = 0.9, .step_ns = 1e8};
  calm.figures.mix = KernelMix{.busy = 1, .sm_active = 0.1, .tensor = 0.1, .step_ns = 1e8};
  const Plan plan = plan_of({base, hungry, calm}, "p40", kGpucastPolicy);
  EXPECT_EQ(plan.jobs[2].start_ns, 1'000'000'000);
  EXPECT_EQ(plan.jobs[2].reason, Reason::best_neighbour);
  EXPECT_NEAR(plan.jobs[2].slowdown, 1 + 1.21 / 2, 1e-6) << "it waits for half of the multiprocessors";
  EXPECT_GT(plan.jobs[1].start_ns, plan.jobs[2].start_ns);
}

TEST(Simulate, AGangRunsAtTheSpeedOfItsSlowestCard) {
  const std::vector<Job> jobs = {job_of("one", 10, kGiB, 0.3, 0.8), job_of("gang", 20, kGiB, 0.3, 0.8, 2)};
  const Plan plan = plan_of(jobs, "2xa10", kOccupancyPolicy, SharingMode::timeslice);
  EXPECT_EQ(plan.jobs[1].cards, (std::vector<uint32_t>{0, 1}));
  EXPECT_NEAR(static_cast<double>(plan.jobs[1].end_ns), in_turns(jobs[1], jobs[0]) * 10e9 + 10e9, 2);
}

// Two jobs that wait for memory take turns: a second job would gain hardly more than half of its speed, and cost the first one as much.
TEST(Simulate, GpucastWaitsIfSharingGainsNothing) {
  std::vector<Job> jobs = {job_of("long", 10, kGiB, 0.3, 0.98), job_of("busy", 1, kGiB, 0.3, 0.98, 1, 1),
                           job_of("calm", 1, kGiB, 0.3, 0.2, 1, 1)};
  for (Job* job : {&jobs[0], &jobs[1]}) {
    job->figures.mix = kernel_mix_of(job->figures);
    job->figures.mix->dram = 0.98;
  }
  const Plan plan = plan_of(jobs, "a10", kGpucastPolicy, SharingMode::timeslice);
  EXPECT_EQ(plan.jobs[2].start_ns, 1'000'000'000);
  EXPECT_GT(plan.jobs[1].start_ns, 10'000'000'000);
}

// A job that slows no neighbour starts before one that has waited longer.
TEST(Simulate, GpucastFirstStartsJobsThatSlowNoNeighbour) {
  const std::vector<Job> jobs = {job_of("first", 10, 10 * kGiB, 0.3, 0.5), job_of("second", 20, 10 * kGiB, 0.3, 0.5),
                                 job_of("heavy", 1, 10 * kGiB, 0.3, 0.9, 1, 1), job_of("light", 1, 10 * kGiB, 0.3, 0.4, 1, 2)};
  const Plan plan = plan_of(jobs, "a10", kGpucastPolicy, SharingMode::timeslice);
  EXPECT_EQ(plan.jobs[3].start_ns, plan.jobs[0].end_ns);
  EXPECT_LT(plan.jobs[3].slowdown, 1.1);
}

TEST(Simulate, LimitsAreSharesThatAddUp) {
  const std::vector<Job> jobs = {job_of("a", 10, kGiB, 0.555, 1), job_of("b", 10, kGiB, 0.44, 1), job_of("c", 10, kGiB, 0.44, 1)};
  const Plan plan = plan_of(jobs, "p40", kMemoryPolicy, SharingMode::mps_limits);
  EXPECT_DOUBLE_EQ(plan.jobs[0].share, 0.56);
  EXPECT_DOUBLE_EQ(plan.jobs[1].share, 0.44);
  EXPECT_EQ(plan.jobs[2].start_ns, 10'000'000'000);
}

TEST(Simulate, MigSlicesHoldOneJobEach) {
  std::vector<Job> jobs;
  for (int i = 0; i < 9; ++i) jobs.push_back(job_of("small", 10, 5 * kGiB, 0.1, 0.5));
  const Plan small = plan_of(jobs, "a100-80", kMemoryPolicy, SharingMode::mig);
  EXPECT_EQ(std::count_if(small.jobs.begin(), small.jobs.end(), [](const Placement& p) { return p.start_ns == 0; }), 7);
  EXPECT_EQ(small.jobs[0].mig_profile, 0);
  EXPECT_EQ(small.jobs[0].reason, Reason::slice_fits);
  EXPECT_EQ(small.makespan_ns, 20'000'000'000);
  // 30 GiB need half of the card's memory, so a third job waits.
  jobs.assign(3, job_of("half", 10, 30 * kGiB, 0.1, 0.5));
  const Plan halves = plan_of(jobs, "a100-80", kMemoryPolicy, SharingMode::mig);
  EXPECT_EQ(halves.jobs[1].start_ns, 0);
  EXPECT_EQ(halves.jobs[2].start_ns, 10'000'000'000);
  // A job that uses 6/7 of the multiprocessors runs 7/3 x 6/7 = 2 times as long on a slice of 3/7.
  const Plan slow = plan_of({job_of("wide", 10, 30 * kGiB, 6.0 / 7, 1)}, "a100-80", kMemoryPolicy, SharingMode::mig);
  EXPECT_NEAR(static_cast<double>(slow.makespan_ns), 20e9, 10);
}

TEST(Simulate, TheFasterOfTwoCards) {
  Job job = job_of("a", 10, kGiB, 0.5, 1);
  job.only_listed = true;
  Figures fast = job.figures;
  fast.step_ns /= 4;
  job.by_card = {{"p40", job.figures}, {"a100-80", fast}};
  const Plan plan = plan_of({job, job}, "p40,a100-80", kSlotPolicy);
  EXPECT_EQ(plan.jobs[0].cards, std::vector<uint32_t>{1});
  EXPECT_EQ(plan.jobs[0].end_ns, 2'500'000'000);
  EXPECT_EQ(plan.jobs[1].end_ns, 10'000'000'000);
  EXPECT_EQ(plan_of({job}, "v100-32", kSlotPolicy).never_fits, 1);
}

// ---- random clusters --------------------------------------------------------------------------------------------------------

struct RandomCase {
  std::vector<Job> jobs;
  std::string cards;
};

RandomCase random_case(uint64_t seed, bool gangs) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  RandomCase out;
  out.cards = std::to_string(pick(1, 4)) + "xp40";
  if (pick(0, 1) == 1) out.cards += "," + std::to_string(pick(1, 3)) + "xa100-40";
  const int64_t count = pick(1, 40);
  for (int64_t i = 0; i < count; ++i) {
    Job job = job_of("j", 0, pick(1, 30) * kGiB / 2, static_cast<double>(pick(1, 100)) / 100, static_cast<double>(pick(1, 100)) / 100,
                     gangs && pick(0, 4) == 0 ? static_cast<int>(pick(2, 3)) : 1);
    job.steps = pick(1, 50);
    job.figures.step_ns = static_cast<double>(pick(1, 1000));
    job.arrival_ns = pick(0, 3) == 0 ? 0 : pick(0, 20000);
    if (pick(0, 2) == 0) {
      Figures fast = job.figures;
      fast.step_ns *= 0.37;
      job.by_card = {{"a100-40", fast}};
    }
    if (pick(0, 1) == 0)
      job.figures.mix = KernelMix{.busy = static_cast<double>(pick(0, 100)) / 100,
                                  .warps = static_cast<double>(pick(0, 100)) / 100,
                                  .dram = static_cast<double>(pick(0, 100)) / 100};
    out.jobs.push_back(job);
  }
  return out;
}

// The same rules without indexes: everything is computed again at each moment.
class BruteForce {
 public:
  BruteForce(const std::vector<Job>& jobs, const Cluster& cluster, const Policy& policy) : jobs_(jobs), cluster_(cluster), policy_(policy) {
    for (uint32_t i = 0; i < jobs.size(); ++i) order_.push_back(i);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return jobs[a].arrival_ns < jobs[b].arrival_ns; });
    end_.assign(jobs.size(), -1);
  }
  std::vector<int64_t> run() {
    size_t next = 0;
    int64_t now = 0;
    for (;;) {
      int64_t then = next < order_.size() ? jobs_[order_[next]].arrival_ns : INT64_MAX;
      for (const auto& [job, at] : running_) then = std::min(then, ends_at(job, now));
      if (then == INT64_MAX) return end_;
      std::set<uint32_t> freed;
      std::vector<uint32_t> ended;
      for (const auto& [job, at] : running_)
        if (ends_at(job, now) <= then) ended.push_back(job);
      for (auto& [job, at] : running_) at.left -= static_cast<double>(then - now) / at.step_ns;
      now = then;
      for (const uint32_t job : ended) {
        end_[job] = now;
        for (const uint32_t card : running_.at(job).cards) freed.insert(card);
        running_.erase(job);
      }
      for (const uint32_t card : freed)
        for (bool again = true; again;) {
          again = false;
          for (size_t i = 0; i < waiting_.size() && !again; ++i) again = start(waiting_[i], &card);
        }
      for (; next < order_.size() && jobs_[order_[next]].arrival_ns == now; ++next) {
        if (!possible(order_[next])) continue;
        waiting_.push_back(order_[next]);
        start(order_[next], nullptr);
      }
      for (auto& [job, at] : running_) {
        const double before = at.step_ns;
        at.step_ns = speed(job, at.cards);
        if (before != at.step_ns) at.end_ns = now + static_cast<int64_t>(std::ceil(std::max(0.0, at.left) * at.step_ns));
      }
    }
  }

 private:
  struct At {
    std::vector<uint32_t> cards;
    double left = 0, step_ns = 0;
    int64_t end_ns = 0;
  };
  const Gpu& gpu(uint32_t card) const { return cluster_.types[cluster_.cards[card].type]; }
  const Figures& figures(uint32_t job, uint32_t card) const { return *jobs_[job].figures_on(gpu(card).id); }
  int64_t ends_at(uint32_t job, int64_t) const { return running_.at(job).end_ns; }
  bool possible(uint32_t job) const {
    for (size_t t = 0; t < cluster_.types.size(); ++t) {
      int count = 0;
      for (const Card& card : cluster_.cards) count += card.type == t ? 1 : 0;
      const Figures* figures = jobs_[job].figures_on(cluster_.types[t].id);
      if (figures && count >= jobs_[job].cards && figures->request_bytes <= static_cast<int64_t>(cluster_.types[t].total_memory_bytes))
        return true;
    }
    return false;
  }
  bool fits(uint32_t job, uint32_t card) const {
    const auto share_of = [&](uint32_t of) { return std::max(policy_.share(figures(of, card)), 1.0 / kMostSharers); };
    double share = share_of(job);
    int64_t bytes = figures(job, card).request_bytes;
    for (const auto& [other, at] : running_) {
      if (std::find(at.cards.begin(), at.cards.end(), card) == at.cards.end()) continue;
      share += share_of(other);
      bytes += figures(other, card).request_bytes;
    }
    return share <= 1 + 1e-9 && bytes <= static_cast<int64_t>(gpu(card).total_memory_bytes);
  }
  bool start(uint32_t job, const uint32_t* must) {
    std::vector<uint32_t> types;
    for (uint32_t t = 0; t < cluster_.types.size(); ++t)
      if (!must || cluster_.cards[*must].type == t) types.push_back(t);
    std::stable_sort(types.begin(), types.end(), [&](uint32_t a, uint32_t b) {
      return jobs_[job].figures_on(cluster_.types[a].id)->step_ns < jobs_[job].figures_on(cluster_.types[b].id)->step_ns;
    });
    for (const uint32_t type : types) {
      std::vector<uint32_t> cards;
      if (must && !fits(job, *must)) return false;
      if (must) cards.push_back(*must);
      for (uint32_t c = 0; c < cluster_.cards.size() && static_cast<int>(cards.size()) < jobs_[job].cards; ++c)
        if (cluster_.cards[c].type == type && (!must || c != *must) && fits(job, c)) cards.push_back(c);
      if (static_cast<int>(cards.size()) < jobs_[job].cards) continue;
      running_[job] = {cards, static_cast<double>(jobs_[job].steps), 0, 0};
      std::erase(waiting_, job);
      return true;
    }
    return false;
  }
  double speed(uint32_t job, const std::vector<uint32_t>& cards) const {
    double slowest = 1;
    for (const uint32_t card : cards) {
      std::vector<KernelMix> mixes;
      size_t own = 0;
      for (const auto& [other, at] : running_) {
        if (std::find(at.cards.begin(), at.cards.end(), card) == at.cards.end()) continue;
        if (other == job) own = mixes.size();
        mixes.push_back(kernel_mix_of(figures(other, card)));
      }
      slowest = std::max(slowest, slowdowns(mixes, gpu(card), cluster_.mode)[own].expected);
    }
    return figures(job, cards.front()).step_ns * slowest;
  }

  const std::vector<Job>& jobs_;
  const Cluster& cluster_;
  const Policy& policy_;
  std::vector<uint32_t> order_, waiting_;
  std::map<uint32_t, At> running_;
  std::vector<int64_t> end_;
};

TEST(Simulate, AsABruteForceSimulator) {
  int64_t compared = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomCase random = random_case(seed, seed % 2 == 1);
    const SharingMode mode = seed % 3 == 0 ? SharingMode::timeslice : SharingMode::mps;
    const Policy& policy = *policies()[seed % 4];
    if (!policy.sees_memory)  // the brute force does not repeat runs that ran out of memory
      for (Job& job : random.jobs) {
        job.figures.request_bytes = 1;
        for (auto& [gpu, figures] : job.by_card) figures.request_bytes = 1;
      }
    const Cluster cluster = parse_cluster(random.cards, mode);
    const Plan plan = plan_of(random.jobs, random.cards.c_str(), policy, mode);
    const std::vector<int64_t> ends = BruteForce(random.jobs, cluster, policy).run();
    for (size_t i = 0; i < ends.size(); ++i) {
      const int64_t end = plan.jobs[i].outcome == Outcome::finished ? plan.jobs[i].end_ns : -1;
      ASSERT_NEAR(static_cast<double>(end), static_cast<double>(ends[i]), 2 + 1e-6 * static_cast<double>(end))
          << "seed " << seed << ", job " << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 4000);
}

// The moments at which a card's set of jobs changes, computed from the plan only.
void check_capacity(const RandomCase& random, const Cluster& cluster, const Plan& plan, const Policy& policy, uint64_t seed) {
  for (uint32_t c = 0; c < cluster.cards.size(); ++c) {
    const Gpu& gpu = cluster.types[cluster.cards[c].type];
    std::vector<uint32_t> here;
    for (uint32_t j = 0; j < plan.jobs.size(); ++j) {
      const std::vector<uint32_t>& cards = plan.jobs[j].cards;
      if (plan.jobs[j].outcome == Outcome::finished && std::find(cards.begin(), cards.end(), c) != cards.end()) here.push_back(j);
    }
    for (const uint32_t moment : here) {
      int64_t bytes = 0;
      double share = 0;
      for (const uint32_t other : here) {
        if (plan.jobs[other].start_ns > plan.jobs[moment].start_ns || plan.jobs[other].end_ns <= plan.jobs[moment].start_ns) continue;
        bytes += plan.jobs[other].request_bytes;
        share += plan.jobs[other].share;
      }
      ASSERT_LE(bytes, static_cast<int64_t>(gpu.total_memory_bytes)) << policy.name << ", seed " << seed;
      ASSERT_TRUE(share <= 1 + 1e-9 || (policy.loss && plan.mode != SharingMode::mps_limits)) << policy.name << ", seed " << seed;
    }
  }
  for (uint32_t j = 0; j < plan.jobs.size(); ++j) {
    const Placement& placed = plan.jobs[j];
    if (placed.outcome != Outcome::finished) continue;
    // The job did all its steps, and never faster than alone.
    const Figures& figures = *random.jobs[j].figures_on(cluster.types[cluster.cards[placed.cards.front()].type].id);
    ASSERT_GE(static_cast<double>(placed.end_ns - placed.start_ns) + 1,
              figures.step_ns * static_cast<double>(random.jobs[j].steps) * (1 - 1e-9));
    ASSERT_GE(placed.start_ns, random.jobs[j].arrival_ns);
    ASSERT_EQ(static_cast<int>(placed.cards.size()), random.jobs[j].cards);
  }
}

TEST(Simulate, NoCardAboveMemoryOrShares) {
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (const Policy* policy : policies())
      for (const SharingMode mode : {SharingMode::timeslice, SharingMode::mps, SharingMode::mps_limits})
        for (const bool fair : {false, true}) {
          const RandomCase random = random_case(seed, true);
          const Cluster cluster = parse_cluster(random.cards, mode);
          const Plan plan = plan_of(random.jobs, random.cards.c_str(), *policy, mode, fair);
          check_capacity(random, cluster, plan, *policy, seed);
          ASSERT_TRUE(!policy->sees_memory || plan.out_of_memory_runs == 0);
          ASSERT_EQ(plan.finished + plan.never_fits + plan.out_of_memory_jobs, static_cast<int64_t>(random.jobs.size()));
          if (HasFatalFailure()) return;
        }
}

// No card is idle while a job waits that would fit on it alone.
TEST(Simulate, WorkIsConserved) {
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (const Policy* policy : policies()) {
      const RandomCase random = random_case(seed, false);
      const Cluster cluster = parse_cluster(random.cards, SharingMode::mps);
      const Plan plan = plan_of(random.jobs, random.cards.c_str(), *policy);
      std::set<int64_t> moments;
      for (const Placement& placed : plan.jobs) moments.insert(placed.end_ns);
      for (const int64_t moment : moments)
        for (uint32_t c = 0; c < cluster.cards.size(); ++c) {
          bool idle = true;
          for (const Placement& placed : plan.jobs)
            if (placed.outcome == Outcome::finished && placed.cards.front() == c && placed.start_ns <= moment && placed.end_ns > moment)
              idle = false;
          if (!idle) continue;
          for (uint32_t j = 0; j < plan.jobs.size(); ++j) {
            const Placement& placed = plan.jobs[j];
            if (placed.outcome != Outcome::finished || random.jobs[j].arrival_ns > moment || placed.start_ns <= moment) continue;
            const Gpu& gpu = cluster.types[cluster.cards[c].type];
            ASSERT_GT(random.jobs[j].figures_on(gpu.id)->request_bytes, static_cast<int64_t>(gpu.total_memory_bytes))
                << policy->name << ", seed " << seed << ", job " << j << " waits at " << moment;
          }
        }
    }
}

// One job that needs two cards, and small jobs that arrive so fast that two cards are never idle at the same time.
TEST(Simulate, FairStarvesNoJob) {
  std::vector<Job> jobs = {job_of("first", 3, 20 * kGiB, 1, 1), job_of("wide", 1, 20 * kGiB, 1, 1, 2, 0.5)};
  for (int i = 0; i < 1000; ++i) jobs.push_back(job_of("small", 2, 20 * kGiB, 1, 1, 1, 0.6 + i));
  for (const Policy* policy : policies()) {
    EXPECT_GT(plan_of(jobs, "2xp40", *policy).jobs[1].start_ns, 900'000'000'000) << policy->name;
    const Plan fair = plan_of(jobs, "2xp40", *policy, SharingMode::mps, true);
    EXPECT_LT(fair.jobs[1].start_ns, 80'000'000'000) << policy->name;
    int64_t overtook = 0;
    for (size_t j = 2; j < jobs.size(); ++j) overtook += fair.jobs[j].start_ns < fair.jobs[1].start_ns ? 1 : 0;
    EXPECT_LE(overtook, kMostOvertakes) << policy->name;
    EXPECT_EQ(fair.finished, static_cast<int64_t>(jobs.size()));
  }
}

// With one job a card, one more card never makes a job end later. (Policies that share cards, and gangs, show Graham's anomaly:
// docs/explanation/packing.md.)
TEST(Simulate, AFurtherCardNeverRemovesFinishedJobs) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomCase random = random_case(seed, false);
    for (Job& job : random.jobs) {
      job.by_card.clear();
      job.figures.request_bytes = kGiB;
    }
    const auto ends = [&](int cards) {
      const Plan plan = plan_of(random.jobs, (std::to_string(cards) + "xp40").c_str(), kSlotPolicy);
      std::vector<int64_t> out;
      for (const Placement& placed : plan.jobs) out.push_back(placed.end_ns);
      return out;
    };
    const std::vector<int64_t> fewer = ends(2), more = ends(3);
    for (size_t j = 0; j < fewer.size(); ++j) ASSERT_LE(more[j], fewer[j]) << "seed " << seed << ", job " << j;
  }
}

TEST(Simulate, SameSeedSamePlan) {
  const RandomCase random = random_case(7, true);
  PackOptions options;
  options.seed = 3;
  const Cluster cluster = parse_cluster(random.cards, SharingMode::mps);
  const Plan one = simulate(random.jobs, cluster, options), other = simulate(random.jobs, cluster, options);
  for (size_t j = 0; j < one.jobs.size(); ++j) {
    EXPECT_EQ(one.jobs[j].cards, other.jobs[j].cards);
    EXPECT_EQ(one.jobs[j].end_ns, other.jobs[j].end_ns);
  }
}

TEST(Simulate, NothingToDo) {
  const Plan plan = plan_of({}, "p40", kGpucastPolicy);
  EXPECT_EQ(plan.makespan_ns, 0);
  EXPECT_EQ(plan.utilization, 0);
}

TEST(Cluster, IsReadFromWords) {
  const Cluster cluster = parse_cluster("4xp40, 2xa100-80,p40", SharingMode::mps);
  EXPECT_EQ(cluster.types.size(), 2U);
  EXPECT_EQ(cluster.cards.size(), 7U);
  EXPECT_EQ(cluster.cards[4].id, "p40/4");
  EXPECT_EQ(cluster.cards[5].id, "a100-80/0");
  for (const char* wrong : {"", "4x", "0xp40", "p41", "2xp40,", "99999999999999999999xp40", "600000xp40,600000xa100-80"})
    EXPECT_THROW(parse_cluster(wrong, SharingMode::mps), Error) << wrong;
  EXPECT_THROW(parse_cluster("p40", SharingMode::mig), Error);
  EXPECT_EQ(mig_profiles(find_gpu("a100-80")).front().name, "1g.10gb");
  EXPECT_EQ(mig_profiles(find_gpu("h100-80")).back().name, "7g.80gb");
}

// Two jobs that have kernels for half of the time and use no memory. Meeting costs 0.071 + 0.363 / 256 of half the time in the first round;
// in the next round, of the slightly longer time for which each has kernels.
TEST(Interference, TimeSlicesSlowWhereKernelsMeet) {
  const Gpu& gpu = find_gpu("a100-80");
  const KernelMix half = {.busy = 0.5, .tensor = 0.1}, memory = {.busy = 0.5, .dram = 0.5}, full = {.busy = 1, .dram = 0.6}, idle = {};
  const auto beside = [&](const KernelMix& one, const KernelMix& other) {
    return slowdowns(std::vector{one, other}, gpu, SharingMode::timeslice)[0].expected;
  };
  EXPECT_NEAR(beside(half, half), 1.01843, 1e-5);
  EXPECT_DOUBLE_EQ(beside(half, idle), 1);
  EXPECT_DOUBLE_EQ(beside(idle, full), 1);
  EXPECT_GT(beside(half, memory), beside(half, half));
  EXPECT_NEAR(beside(full, full), 1 + 0.071 + 0.363 + 0.557 * 0.6, 1e-9) << "both always have kernels";
  // For any number of jobs, their utilizations add up to at most 0.92 / 0.77.
  const auto many = slowdowns(std::vector<KernelMix>(20, half), gpu, SharingMode::timeslice);
  EXPECT_NEAR(many[7].expected, 20 * 0.5 * 0.77 / 0.92, 1e-9);
  const auto three = slowdowns(std::vector{half, half, memory}, gpu, SharingMode::timeslice);
  EXPECT_GT(three[0].expected, beside(half, memory));
  EXPECT_DOUBLE_EQ(three[0].expected, three[1].expected);
  EXPECT_GT(beside(half, KernelMix{.busy = 0.5}), beside(half, half)) << "the neighbour's memory share is not known";
}

// Jobs with counted kernels divide 0.92 of the time. A job that asks for less than its part gets that, and is not slowed.
TEST(Interference, TimeSlicesDivideTheCardsTime) {
  const auto job = [](double busy) { return KernelMix{.busy = busy, .kernels = 100, .step_ns = 1e8}; };
  const auto first_of = [&](const std::vector<KernelMix>& jobs) {
    return slowdowns(jobs, find_gpu("h200"), SharingMode::timeslice)[0].expected;
  };
  EXPECT_NEAR(first_of({job(1), job(1)}), 1 / 0.46, 1e-9);
  EXPECT_NEAR(first_of({job(1), job(0.46)}), 1 / 0.46, 1e-9);
  EXPECT_NEAR(first_of({job(0.46), job(1)}), 1, 1e-9) << "it asks for its part";
  EXPECT_DOUBLE_EQ(first_of({job(0.4), job(0.5)}), 1) << "kernels run in the neighbour's gaps";
  EXPECT_NEAR(first_of({job(1), job(0.1), job(0.5)}), 1 / 0.41, 1e-9) << "0.92 without 0.1, divided by two";
  EXPECT_NEAR(first_of({job(0.5), job(0.1), job(1)}), 0.5 / 0.41, 1e-9);
  EXPECT_DOUBLE_EQ(first_of({job(1), job(0)}), 1);
  EXPECT_LT(first_of({job(1), job(0.01)}), 1.02) << "little is lost to a neighbour that hardly runs";
}

// Under MPS since Ampere kernels run at once; parts of the card grow with the square root of the kernels' length.
TEST(Interference, MpsSinceAmpereDividesTheCard) {
  const auto job = [](double busy, int64_t kernels) { return KernelMix{.busy = busy, .kernels = kernels, .step_ns = 1e8}; };
  const auto beside = [&](const KernelMix& one, const KernelMix& other) {
    return slowdowns(std::vector{one, other}, find_gpu("h200"), SharingMode::mps)[0].expected;
  };
  EXPECT_NEAR(beside(job(1, 100), job(1, 100)), 1 / 0.55, 1e-9);
  EXPECT_NEAR(beside(job(1, 400), job(1, 100)), 3 / 1.1, 1e-9) << "its kernels have a fourth of the length";
  EXPECT_NEAR(beside(job(1, 100), job(1, 400)), 1.5 / 1.1, 1e-9);
  EXPECT_DOUBLE_EQ(beside(job(0.5, 100), job(0.6, 100)), 1);
}

// Two jobs that always have kernels of the same length take turns. If the lengths differ, the job with short kernels waits more.
TEST(Interference, MpsSlowsJobsWithShortKernels) {
  const Gpu& gpu = find_gpu("v100-16");
  const auto job = [](double busy, int64_t kernels) {
    return KernelMix{.busy = busy, .sm_active = busy, .kernels = kernels, .waves = kernels, .step_ns = 1e8};
  };
  const auto beside = [&](const KernelMix& one, const KernelMix& other) {
    return slowdowns(std::vector{one, other}, gpu, SharingMode::mps)[0].expected;
  };
  const KernelMix full = job(1, 1000), half = job(0.5, 1000), short_kernels = job(1, 10000), idle = {};
  EXPECT_NEAR(beside(full, full), 2.21, 1e-9);
  EXPECT_DOUBLE_EQ(beside(full, idle), 1);
  EXPECT_DOUBLE_EQ(beside(idle, full), 1);
  // 100 and 10 microseconds, and 5 for each turn.
  EXPECT_NEAR(beside(short_kernels, full), 1 + 1.21 * 105 / 15, 1e-9);
  EXPECT_NEAR(beside(full, short_kernels), 1 + 1.21 * 15 / 105, 1e-9);
  EXPECT_LT(beside(half, full), beside(full, full));
  EXPECT_LT(beside(full, half), beside(full, full));
  KernelMix narrow = full, in_waves = full;
  narrow.sm_active = 0.1;
  EXPECT_NEAR(beside(full, narrow), 1.121, 1e-9) << "the neighbour leaves nine of ten multiprocessors";
  in_waves.waves *= 10;
  EXPECT_LT(beside(full, in_waves), beside(full, full)) << "other jobs get a turn before its kernels are done";
  const auto three = slowdowns(std::vector{half, full, half}, gpu, SharingMode::mps);
  EXPECT_GT(three[1].expected, beside(full, half));
  EXPECT_DOUBLE_EQ(three[0].expected, three[2].expected);
  EXPECT_GT(three[0].high, three[0].expected);
}

// Two jobs that always have kernels get half of the time each, with a small loss. A job with shorter steps releases the card more often.
TEST(Interference, TimeSlicesOfOldCardsAreTurns) {
  const Gpu& gpu = find_gpu("p100");
  const auto job = [](double busy, double step_ms) { return KernelMix{.busy = busy, .step_ns = step_ms * 1e6}; };
  const auto beside = [&](const KernelMix& one, const KernelMix& other) {
    return slowdowns(std::vector{one, other}, gpu, SharingMode::timeslice)[0].expected;
  };
  // A slice of 24.6 ms: turns of 1 / (1 / 24.6 + 1 / 24.6) = 12.3 and 1 / (1 / 24.6 + 1 / 221.4) = 22.14 ms.
  const KernelMix short_steps = job(1, 24.6), long_steps = job(1, 221.4), idle = {};
  EXPECT_NEAR(beside(short_steps, short_steps), 1.913, 1e-9);
  EXPECT_NEAR(beside(short_steps, long_steps), 1 + 0.913 * 22.14 / 12.3, 1e-9);
  EXPECT_NEAR(beside(long_steps, short_steps), 1 + 0.913 * 12.3 / 22.14, 1e-9);
  EXPECT_DOUBLE_EQ(beside(short_steps, idle), 1);
  EXPECT_DOUBLE_EQ(beside(idle, long_steps), 1);
  // Kernels for half of the time, in the next round for 0.72825 / 1.22825 of it.
  EXPECT_NEAR(beside(job(0.5, 100), job(0.5, 100)), 1 + 0.5 * 0.913 * 0.72825 / 1.22825, 1e-9);
  EXPECT_DOUBLE_EQ(beside(job(1, 0.1), long_steps), beside(job(1, 7), long_steps)) << "steps shorter than any measured one";
  const auto three = slowdowns(std::vector(3, long_steps), gpu, SharingMode::timeslice);
  EXPECT_NEAR(three[2].expected, 1 + 2 * 0.913, 1e-9);
  EXPECT_GT(three[2].high, three[2].expected);
  EXPECT_GT(beside(long_steps, long_steps), slowdowns(std::vector(2, long_steps), find_gpu("v100-16"), SharingMode::timeslice)[0].expected);
}

TEST(Interference, AFurtherNeighbourNeverHelps) {
  const std::pair<const char*, SharingMode> models[] = {
      {"v100-16", SharingMode::mps}, {"p100", SharingMode::timeslice}, {"h200", SharingMode::mps}, {"h200", SharingMode::timeslice}};
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < 300; ++i) {
    std::vector<KernelMix> mixes;
    for (int j = 0; j < 5; ++j)
      mixes.push_back({.busy = share(random),
                       .sm_active = share(random),
                       .dram = share(random),
                       .kernels = static_cast<int64_t>(1000 * share(random)),
                       .waves = static_cast<int64_t>(5000 * share(random)),
                       .step_ns = 1e8 * share(random)});
    for (const auto& [card, mode] : models) {
      const Gpu& gpu = find_gpu(card);
      const auto four = slowdowns(std::span(mixes).first(4), gpu, mode), five = slowdowns(mixes, gpu, mode);
      for (size_t j = 0; j < four.size(); ++j) {
        EXPECT_GE(four[j].expected, 1) << card;
        EXPECT_GE(five[j].expected, four[j].expected - 1e-9) << card;
      }
    }
  }
}

TEST(Interference, SumsAboveOneSlowAll) {
  const Gpu& gpu = find_gpu("a100-80");
  const KernelMix half = {.busy = 0.6, .sm_active = 0.06, .dram = 0.9}, other = {.busy = 0.6, .sm_active = 0.06, .tensor = 0.9};
  EXPECT_LT(slowdowns(std::vector{half, other}, gpu, SharingMode::mps)[0].expected, 1.1);
  EXPECT_DOUBLE_EQ(slowdowns(std::vector{half, half}, gpu, SharingMode::mps)[0].expected, 1.8);
  EXPECT_DOUBLE_EQ(slowdowns(std::vector{half}, gpu, SharingMode::timeslice)[0].high, 1);
  KernelMix slice = half;
  slice.memory_limit = 0.5;
  EXPECT_DOUBLE_EQ(slowdowns(std::vector{slice, other}, gpu, SharingMode::mig)[0].expected, 1.8);
}

}  // namespace
}  // namespace gpucast::pack

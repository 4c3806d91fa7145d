#include "src/pack/ways_to_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpucast/gpu.h"

namespace gpucast::pack {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

Job job(const char* name, double gib, double sm_active) {
  Job out;
  out.name = name;
  out.figures.step_ns = 1e8;
  out.figures.request_bytes = static_cast<int64_t>(gib * static_cast<double>(kGiB));
  KernelMix mix;
  mix.busy = mix.sm_active = mix.warps = sm_active;
  mix.step_ns = 1e8;
  out.figures.mix = mix;
  return out;
}

const WayToShare& way(const std::vector<WayToShare>& ways, SharingMode mode) { return *std::ranges::find(ways, mode, &WayToShare::mode); }

TEST(WaysToShare, EachModeHasTheJobsItCanHold) {
  const Gpu gpu = find_gpu("a100-80");
  const std::vector<Job> jobs = {job("large", 45, 0.9), job("small", 15, 0.4)};
  const auto ways = ways_to_share(jobs, gpu, pack_constants());
  ASSERT_EQ(ways.size(), 4U);
  for (const WayToShare& one : ways) {
    if (one.mode == SharingMode::mig) continue;
    EXPECT_TRUE(one.problem.empty());
    ASSERT_EQ(one.slowdowns.size(), 2U);
    EXPECT_DOUBLE_EQ(one.progress, 1 / one.slowdowns[0].expected + 1 / one.slowdowns[1].expected);
  }
  EXPECT_EQ(way(ways, SharingMode::mig).problem, "the card has no slices for 2 jobs of these sizes") << "45 GiB need the whole card";
}

TEST(WaysToShare, LimitsAddUpToTheWholeCardAtMost) {
  const std::vector<Job> jobs = {job("one", 5, 0.9), job("other", 5, 0.6)};
  const auto limits = way(ways_to_share(jobs, find_gpu("a100-80"), pack_constants()), SharingMode::mps_limits).limits;
  EXPECT_EQ(limits, (std::vector<std::string>{"60 %", "40 %"}));
  const std::vector<Job> small = {job("one", 5, 0.5), job("other", 5, 0.25)};
  EXPECT_EQ(way(ways_to_share(small, find_gpu("a100-80"), pack_constants()), SharingMode::mps_limits).limits,
            (std::vector<std::string>{"50 %", "25 %"}));
}

TEST(WaysToShare, SlicesAreThoseOfTheLargestProgress) {
  // 4g and 3g fill the card. The job that uses more multiprocessors gets more of them.
  const std::vector<Job> jobs = {job("light", 20, 0.2), job("heavy", 20, 1)};
  const WayToShare mig = way(ways_to_share(jobs, find_gpu("a100-80"), pack_constants()), SharingMode::mig);
  EXPECT_EQ(mig.limits, (std::vector<std::string>{"3g.40gb", "4g.40gb"}));
  const std::vector<Job> seven(7, job("equal", 5, 1));
  EXPECT_EQ(way(ways_to_share(seven, find_gpu("a100-80"), pack_constants()), SharingMode::mig).limits,
            std::vector<std::string>(7, "1g.10gb"));
  const std::vector<Job> eight(8, job("equal", 5, 1));
  EXPECT_FALSE(way(ways_to_share(eight, find_gpu("a100-80"), pack_constants()), SharingMode::mig).problem.empty());
}

TEST(WaysToShare, KernelsThatLeaveRoomGainByMps) {
  std::vector<Job> jobs = {job("one", 15, 0.4), job("other", 15, 0.4)};
  for (Job& one : jobs) one.figures.mix->busy = 1, one.figures.mix->kernels = 1000;
  const auto ways = ways_to_share(jobs, find_gpu("a100-80"), pack_constants());
  EXPECT_LT(way(ways, SharingMode::timeslice).progress, 1.05) << "a card's time is divided";
  EXPECT_GT(way(ways, SharingMode::mps).progress, way(ways, SharingMode::timeslice).progress);
}

TEST(WaysToShare, TooMuchMemoryIsSaid) {
  const std::vector<Job> jobs = {job("one", 15, 0.5), job("other", 15, 0.5)};
  const auto ways = ways_to_share(jobs, find_gpu("rtx4090"), pack_constants());
  EXPECT_EQ(ways.size(), 3U) << "no MIG";
  for (const WayToShare& one : ways) EXPECT_EQ(one.problem, "they ask for 30.00 GiB of 23.52 GiB");
}

}  // namespace
}  // namespace gpucast::pack

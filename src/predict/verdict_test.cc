#include "src/predict/verdict.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

const LedgerLine kLedger = {"total", "", 1 * kGiB, 2 * kGiB, 3 * kGiB, ""};

TEST(Verdict, FitsOnlyWhenTheHighEstimateDoes) {
  EXPECT_EQ(judge({6 * kGiB, 7 * kGiB}, kLedger, 10 * kGiB).verdict, Verdict::fits);
  EXPECT_EQ(judge({6 * kGiB, 7 * kGiB}, kLedger, 10 * kGiB - 1).verdict, Verdict::tight);
}

TEST(Verdict, TightBetweenLowAndHigh) {
  const Judgement out = judge({6 * kGiB, 7 * kGiB}, kLedger, 8 * kGiB);
  EXPECT_EQ(out.verdict, Verdict::tight);
  EXPECT_FALSE(out.needs_reclaim);
  EXPECT_EQ(out.device.low_bytes, 8 * kGiB);
  EXPECT_EQ(out.device.expected_bytes, 9 * kGiB);
  EXPECT_EQ(out.device.high_bytes, 10 * kGiB);
}

TEST(Verdict, TightWhenCachedMemoryWouldHaveToBeGivenBack) {
  const Judgement out = judge({6 * kGiB, 7 * kGiB}, kLedger, 8 * kGiB - 1);
  EXPECT_EQ(out.verdict, Verdict::tight);
  EXPECT_TRUE(out.needs_reclaim);
}

TEST(Verdict, DoesNotFitWhenTensorsAloneDoNot) {
  EXPECT_EQ(judge({6 * kGiB, 7 * kGiB}, kLedger, 7 * kGiB).verdict, Verdict::tight);
  EXPECT_EQ(judge({6 * kGiB, 7 * kGiB}, kLedger, 7 * kGiB - 1).verdict, Verdict::does_not_fit);
}

TEST(Verdict, OomDecidesOnItsOwnCardAndLeavesOthersOpen) {
  Need need{1 * kGiB, 1 * kGiB};
  need.ended_in_oom = true;
  EXPECT_EQ(judge(need, kLedger, 80 * kGiB).verdict, Verdict::does_not_fit);
  need.ended_in_oom = false;
  need.cut_by_oom = true;
  EXPECT_EQ(judge(need, kLedger, 80 * kGiB).verdict, Verdict::tight);
}

}  // namespace
}  // namespace gpucast

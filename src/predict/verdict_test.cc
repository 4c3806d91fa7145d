#include "src/predict/verdict.h"

#include <gtest/gtest.h>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

Beside beside(int64_t low, int64_t expected, int64_t request) {
  Beside out;
  out.low_bytes = out.least_bytes = low;
  out.expected_bytes = expected;
  out.high_bytes = out.request_bytes = request;
  return out;
}
const Beside kBeside = beside(1 * kGiB, 2 * kGiB, 3 * kGiB);

TEST(Verdict, FitsOnlyIfTheRequestFits) {
  const Judgement fits = judge_need({6 * kGiB, 7 * kGiB, false, false, nullptr}, kBeside, 10 * kGiB);
  EXPECT_EQ(fits.verdict, Verdict::fits);
  EXPECT_EQ(fits.reason, "1.00 GiB to spare, at worst 0 B");
  EXPECT_EQ(judge_need({6 * kGiB, 7 * kGiB, false, false, nullptr}, kBeside, 10 * kGiB - 1).verdict, Verdict::tight);
  Beside more = kBeside;
  more.request_bytes += kGiB;
  const Judgement out = judge_need({6 * kGiB, 7 * kGiB, false, false, nullptr}, more, 10 * kGiB);
  EXPECT_EQ(out.verdict, Verdict::tight);
  EXPECT_EQ(out.device.request_bytes, 11 * kGiB);
  EXPECT_EQ(out.reason, "1.00 GiB to spare, at worst 1.00 GiB short: the card's memory outside PyTorch is not known exactly");
}

TEST(Verdict, ALineThatMayBeLessDoesNotMakeRoom) {
  Beside less = kBeside;
  less.low_bytes = -kGiB;  // the range of convolutions begins below the prediction; the memory that is certainly used stays the same
  MemoryNeed need{6 * kGiB, 7 * kGiB, false, false, nullptr};
  need.runs_at = [](int64_t capacity_bytes) { return RunsAt{capacity_bytes > 6 * kGiB, 0}; };
  const Judgement out = judge_need(need, less, 7 * kGiB);
  EXPECT_EQ(out.verdict, Verdict::does_not_fit);
  EXPECT_EQ(out.device.low_bytes, 6 * kGiB);
}

TEST(Verdict, TightBetweenLowAndHigh) {
  const Judgement out = judge_need({6 * kGiB, 7 * kGiB, false, false, nullptr}, kBeside, 8 * kGiB);
  EXPECT_EQ(out.verdict, Verdict::tight);
  EXPECT_FALSE(out.needs_reclaim);
  EXPECT_EQ(out.device.low_bytes, 8 * kGiB);
  EXPECT_EQ(out.device.expected_bytes, 9 * kGiB);
  EXPECT_EQ(out.device.high_bytes, 10 * kGiB);
}

// A job that needs at least 6.5 GiB, and gives memory back twice.
MemoryNeed from_6500_mib() {
  MemoryNeed need{6 * kGiB, 7 * kGiB, false, false, nullptr};
  need.runs_at = [](int64_t capacity_bytes) { return RunsAt{capacity_bytes >= 13 * kGiB / 2, 2}; };
  return need;
}

TEST(Verdict, TightWhenCachedMemoryHasToBeGivenBack) {
  const Beside exact = beside(kGiB, kGiB, kGiB);
  const Judgement out = judge_need(from_6500_mib(), exact, 8 * kGiB - 1);
  EXPECT_EQ(out.verdict, Verdict::tight);
  EXPECT_TRUE(out.needs_reclaim);
  EXPECT_NE(out.reason.find("it runs, but PyTorch has to give cached memory back (2 times)"), std::string::npos) << out.reason;
}

TEST(Verdict, SaysWhichEstimateDecides) {
  const Beside wide = beside(kGiB / 2, kGiB, 2 * kGiB);
  EXPECT_NE(judge_need(from_6500_mib(), wide, 15 * kGiB / 2 - 1).reason.find("only by the low estimate"), std::string::npos);
  EXPECT_NE(judge_need({6 * kGiB, 8 * kGiB, false, false, from_6500_mib().runs_at}, wide, 15 * kGiB / 2).reason.find("it should run"),
            std::string::npos);
}

TEST(Verdict, DoesNotFitWhenAReplayRunsOut) {
  EXPECT_EQ(judge_need(from_6500_mib(), kBeside, 15 * kGiB / 2).verdict, Verdict::tight);
  EXPECT_EQ(judge_need(from_6500_mib(), kBeside, 15 * kGiB / 2 - 1).verdict, Verdict::does_not_fit);
}

TEST(Verdict, DoesNotFitWhenTensorsAloneDoNot) {
  const Judgement out = judge_need({6 * kGiB, 7 * kGiB, false, false, nullptr}, kBeside, 7 * kGiB - 1);
  EXPECT_EQ(out.verdict, Verdict::does_not_fit);
  EXPECT_NE(out.reason.find("tensors and the CUDA context alone"), std::string::npos);
}

TEST(Verdict, OomDecidesOnlyForItsOwnCard) {
  MemoryNeed need{1 * kGiB, 1 * kGiB, false, false, nullptr};
  need.ended_in_oom = true;
  EXPECT_EQ(judge_need(need, kBeside, 80 * kGiB).verdict, Verdict::does_not_fit);
  need.ended_in_oom = false;
  need.cut_by_oom = true;
  EXPECT_EQ(judge_need(need, kBeside, 80 * kGiB).verdict, Verdict::tight);
}

TEST(Verdict, NothingToJudgeIsNoVerdictUnlessTheRecordedPartExceedsTheCard) {
  MemoryNeed need{6 * kGiB, 7 * kGiB, false, false, nullptr, "the script raised"};
  const Judgement out = judge_need(need, kBeside, 80 * kGiB);
  EXPECT_EQ(out.verdict, Verdict::none);
  EXPECT_EQ(out.reason, "the script raised");
  EXPECT_EQ(judge_need(need, kBeside, 5 * kGiB).verdict, Verdict::does_not_fit);
}

}  // namespace
}  // namespace gpucast

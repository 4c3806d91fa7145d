#include "gpucast/ranks.h"

#include <gtest/gtest.h>

#include "gpucast/prediction.h"

namespace gpucast {
namespace {

Prediction of(int64_t rank, Verdict verdict, int64_t request_bytes, std::vector<CategoryLine> categories = {}) {
  Prediction p;
  p.rank = rank;
  p.device_index = rank;
  p.verdict = verdict;
  p.device.request_bytes = request_bytes;
  p.categories = std::move(categories);
  return p;
}

TEST(Ranks, TheOneThatNeedsMostDecides) {
  const Ranks ranks =
      compare_ranks({of(0, Verdict::fits, 10, {{"parameters", 4}, {"gradients", 2}}),
                     of(1, Verdict::fits, 30, {{"parameters", 4}, {"gradients", 9}, {"inputs", 1}}), of(2, Verdict::fits, 20)});
  EXPECT_EQ(ranks.judged, 1u);
  EXPECT_EQ(ranks.least, 0u);
  ASSERT_EQ(ranks.differences.size(), 2u);  // parameters do not differ
  EXPECT_EQ(ranks.differences[0].name, "gradients");
  EXPECT_EQ(ranks.differences[0].bytes, 7);
  EXPECT_EQ(ranks.differences[1].bytes, 1);
  ASSERT_EQ(ranks.lines.size(), 3u);
  EXPECT_EQ(ranks.lines[2].rank, 2);
  EXPECT_EQ(ranks.lines[2].device, 2);
  EXPECT_EQ(ranks.lines[2].request_bytes, 20);
}

TEST(Ranks, OneThatDoesNotFitDecidesForAnyOtherRanks) {
  EXPECT_EQ(compare_ranks({of(0, Verdict::tight, 30), of(1, Verdict::does_not_fit, 10), of(2, Verdict::none, 90)}).judged, 1u);
  EXPECT_EQ(compare_ranks({of(0, Verdict::none, 90), of(1, Verdict::fits, 10)}).judged, 1u);
}

TEST(Ranks, TheFirstOfEquals) {
  const Ranks ranks = compare_ranks({of(0, Verdict::fits, 10), of(1, Verdict::fits, 10)});
  EXPECT_EQ(ranks.judged, 0u);
  EXPECT_EQ(ranks.least, 0u);
  EXPECT_TRUE(ranks.differences.empty());
}

}  // namespace
}  // namespace gpucast

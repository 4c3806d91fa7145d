#include "src/base/alloc_conf.h"

#include <gtest/gtest.h>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

TEST(AllocConf, RoundsTo512BytesByDefault) {
  const AllocConf conf = parse_alloc_conf("", "2.14.1+cu130");
  EXPECT_EQ(conf.round_size(1), 512);
  EXPECT_EQ(conf.round_size(512), 512);
  EXPECT_EQ(conf.round_size(513), 1024);
  EXPECT_EQ(conf.round_size(10 * kMiB + 1), 10 * kMiB + 512);
  EXPECT_TRUE(conf.unknown.empty());
}

TEST(AllocConf, OneNumberOfDivisionsForAllSizes) {
  const AllocConf conf = parse_alloc_conf("roundup_power2_divisions:4", "2.14.1");
  EXPECT_EQ(conf.round_size(1200), 1536);  // not above 4 * 512 B: to 512 B
  EXPECT_EQ(conf.round_size(2049), 2560);  // steps of 2048 / 4
  EXPECT_EQ(conf.round_size(4096), 4096);
  EXPECT_EQ(conf.round_size(9 * kMiB), 10 * kMiB);  // 8, 10, 12, 14 MiB
}

TEST(AllocConf, DivisionsBySize) {
  const AllocConf conf = parse_alloc_conf(" roundup_power2_divisions : [256:1,512:2,1024:4,>:8] ", "2.14.1");
  EXPECT_EQ(conf.round_size(200 * kMiB + 1), 200 * kMiB + 512);  // smaller than the first bound: like the first, 1
  EXPECT_EQ(conf.round_size(600 * kMiB), 768 * kMiB);            // 512 MiB: halves
  EXPECT_EQ(conf.round_size(1030 * kMiB), 1280 * kMiB);          // 1 GiB: quarters
  EXPECT_EQ(conf.round_size(2049 * kMiB), 2304 * kMiB);          // beyond: eighths
}

TEST(AllocConf, GreaterMeantTheLastBoundTooInOlderReleases) {
  const AllocConf old_conf = parse_alloc_conf("roundup_power2_divisions:[512:2,1024:4,>:8]", "2.6.0+cu124");
  EXPECT_EQ(old_conf.round_size(1030 * kMiB), 1152 * kMiB);  // eighths already from 1 GiB
}

TEST(AllocConf, SplitRules) {
  AllocConf conf = parse_alloc_conf("max_split_size_mb:100", "2.14.1");
  EXPECT_TRUE(conf.splits(512, 512, false));         // the small pool splits off 512 B
  EXPECT_FALSE(conf.splits(5 * kMiB, kMiB, false));  // the large pool only more than 1 MiB
  EXPECT_TRUE(conf.splits(5 * kMiB, kMiB + 512, false));
  EXPECT_FALSE(conf.splits(100 * kMiB, 50 * kMiB, false));  // from max_split_size on, nothing is split
  EXPECT_TRUE(conf.splits(5 * kMiB, 512, true));            // expandable segments split like the small pool
}

TEST(AllocConf, SaysWhatItDoesNotUnderstand) {
  const AllocConf conf =
      parse_alloc_conf("expandable_segments:True,roundup_power2_divisions:[3:2],max_split_size_mb:many,backend:native", "2.14.1");
  EXPECT_TRUE(conf.expandable_segments);
  EXPECT_EQ(conf.unknown, (std::vector<std::string>{"roundup_power2_divisions:[3:2]", "max_split_size_mb:many"}));
  EXPECT_EQ(conf.round_size(513), 1024);
}

}  // namespace
}  // namespace gpucast

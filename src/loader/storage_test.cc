#include "gpucast/storage.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"

namespace gpucast {
namespace {

TEST(Storage, EveryTierHasItsFiguresAndASource) {
  ASSERT_EQ(storage_tiers().size(), 4U);
  for (const StorageTier& tier : storage_tiers()) {
    EXPECT_GT(tier.stream_bytes_per_s, 1e6) << tier.name;
    EXPECT_GE(tier.device_bytes_per_s, tier.stream_bytes_per_s) << tier.name;
    EXPECT_GT(tier.latency_ns, 0) << tier.name;
    EXPECT_GT(tier.source.size(), 20U) << tier.name;
  }
}

TEST(Storage, ABandwidthIsATier) {
  EXPECT_DOUBLE_EQ(find_storage("200MB/s").stream_bytes_per_s, 2e8);
  EXPECT_DOUBLE_EQ(find_storage("1.5GiB/s").device_bytes_per_s, 1.5 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(find_storage("5000000B/s").stream_bytes_per_s, 5e6);
  EXPECT_DOUBLE_EQ(storage_ns(find_storage("100MB/s"), 2e6, 10), 20e6);
  EXPECT_DOUBLE_EQ(storage_ns(find_storage("hdd"), 0, 3), 36e6);
}

TEST(Storage, OtherTextsAreErrors) {
  for (const char* text : {"floppy", "", "-5MB/s", "0", "nan", "5 parsecs", "MB/s", "inf", "200", "200/s"})
    EXPECT_THROW(find_storage(text), Error) << text;
  try {
    (void)find_storage("200");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--storage: '200' has no unit");
    EXPECT_NE(error.hint.find("200MB/s"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpucast

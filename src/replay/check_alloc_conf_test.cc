#include "src/replay/check_alloc_conf.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"

namespace gpucast {
namespace {

// tests/python/test_replay.py compares many more with PyTorch itself.
bool accepts(const std::string& conf, const std::string& torch = "2.14.1") {
  try {
    check_alloc_conf(conf, torch);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string hint(const std::string& conf) {
  try {
    check_alloc_conf(conf, "2.14.1");
  } catch (const Error& error) {
    return error.hint;
  }
  return "";
}

TEST(CheckAllocConf, TakesWhatPyTorchTakes) {
  EXPECT_TRUE(accepts(""));
  EXPECT_TRUE(accepts("expandable_segments:True,max_split_size_mb:128"));
  EXPECT_TRUE(accepts(" max_split_size_mb : 64 , roundup_power2_divisions : [256:1, 512:2, >:8],"));
  EXPECT_TRUE(accepts("backend:native,pinned_use_background_threads:True"));
  EXPECT_TRUE(accepts("backend:bfc"));
}

TEST(CheckAllocConf, LimitsFollowTheRelease) {
  EXPECT_FALSE(accepts("max_split_size_mb:20", "2.6.0"));
  EXPECT_TRUE(accepts("max_split_size_mb:21", "2.6.0"));
  EXPECT_TRUE(accepts("max_split_size_mb:20"));
  EXPECT_FALSE(accepts("max_split_size_mb:32,large_segment_size_mb:64"));
  EXPECT_FALSE(accepts("large_segment_size_mb:64", "2.6.0"));
  EXPECT_FALSE(accepts("large_segment_size_mb:10"));
}

TEST(CheckAllocConf, RefusesBadValues) {
  for (const char* conf :
       {"expandable_segments:true", "garbage_collection_threshold:1", "garbage_collection_threshold:0", "per_process_memory_fraction:1.5",
        "roundup_power2_divisions:3", "roundup_power2_divisions:[256:1", "max_split_size_mb", "max_split_size_mb:", "max_split_size_mb:64x",
        ",max_split_size_mb:64", "max_split_size_mb:64,,expandable_segments:True", "backend:cudaMallocAsync", "backend:bfc,nothing:1",
        "pinned_num_register_threads:3", "unheard_of:1"}) {
    EXPECT_FALSE(accepts(conf)) << conf;
  }
}

TEST(CheckAllocConf, SaysWhatWasMeant) {
  EXPECT_EQ(hint("expandable_segment:True"), "did you mean 'expandable_segments:True'?");
  EXPECT_EQ(hint("max_split_size_mb=64"), "did you mean 'max_split_size_mb:64'?");
}

}  // namespace
}  // namespace gpucast

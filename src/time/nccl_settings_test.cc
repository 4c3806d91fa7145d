#include "src/time/nccl_settings.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"

namespace gpucast {
namespace {

using enum CollectiveKind;
using Algorithm = NcclAlgorithm;
using Protocol = NcclProtocol;

std::string hint_of(const char* name, const char* value) {
  try {
    read_nccl_settings({{name, value}});
  } catch (const Error& error) {
    return error.hint;
  }
  return "no error";
}

TEST(NcclSettings, AllIsAllowedByDefault) {
  const NcclSettings settings = read_nccl_settings({{"PATH", "x"}, {"NCCL_DEBUG", "INFO"}});
  EXPECT_TRUE(settings.allows(all_reduce, Algorithm::nvls));
  EXPECT_TRUE(settings.allows(broadcast, Protocol::ll128));
  EXPECT_FALSE(settings.forces_ll128[0]);
  EXPECT_TRUE(settings.peer && settings.multicast);
}

TEST(NcclSettings, NamesLists) {
  const NcclSettings settings = read_nccl_settings({{"NCCL_ALGO", "ring,Tree"}, {"NCCL_PROTO", "^LL128"}});
  EXPECT_TRUE(settings.allows(all_reduce, Algorithm::tree));
  EXPECT_FALSE(settings.allows(all_reduce, Algorithm::nvls));
  EXPECT_FALSE(settings.allows(all_gather, Protocol::ll128));
  EXPECT_TRUE(settings.allows(all_gather, Protocol::simple));
  EXPECT_TRUE(read_nccl_settings({{"NCCL_PROTO", "LL128"}}).forces_ll128[0]);
}

TEST(NcclSettings, ListsByFunction) {
  const NcclSettings settings = read_nccl_settings({{"NCCL_ALGO", "ring;allreduce:tree"}, {"NCCL_PROTO", "allgather:Simple"}});
  EXPECT_FALSE(settings.allows(all_reduce, Algorithm::ring));
  EXPECT_TRUE(settings.allows(all_reduce, Algorithm::tree));
  EXPECT_TRUE(settings.allows(reduce_scatter, Algorithm::ring));
  EXPECT_FALSE(settings.allows(all_gather, Protocol::ll));
  EXPECT_TRUE(settings.allows(all_reduce, Protocol::ll));
}

TEST(NcclSettings, Switches) {
  const NcclSettings settings = read_nccl_settings({{"NCCL_P2P_DISABLE", "1"}, {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_MAX_CTAS", "8"}});
  EXPECT_FALSE(settings.peer);
  EXPECT_FALSE(settings.multicast);
  EXPECT_EQ(settings.most_channels, 8);
  EXPECT_TRUE(read_nccl_settings({{"NCCL_NVLS_ENABLE", "2"}}).multicast);
  EXPECT_TRUE(read_nccl_settings({{"NCCL_P2P_LEVEL", "SYS"}}).peer_through_processor);
  EXPECT_FALSE(read_nccl_settings({{"NCCL_P2P_LEVEL", "PXB"}}).peer_through_processor);
  EXPECT_FALSE(read_nccl_settings({{"NCCL_P2P_LEVEL", "0"}}).peer);
}

TEST(NcclSettings, WhatNcclRefusesIsAnError) {
  EXPECT_EQ(hint_of("NCCL_ALGO", "Rign"), "did you mean Ring?");
  EXPECT_EQ(hint_of("NCCL_PROTO", "LL129"), "did you mean LL128?");
  EXPECT_NE(hint_of("NCCL_ALGO", "alreduce:Ring").find("AllReduce"), std::string::npos);
  EXPECT_NE(hint_of("NCCL_ALGO", "Ring;Tree"), "no error");
  EXPECT_NE(hint_of("NCCL_ALGO", "^"), "no error");
  EXPECT_NE(hint_of("NCCL_P2P_DISABLE", "yes"), "no error");
  EXPECT_NE(hint_of("NCCL_MAX_NCHANNELS", "-1"), "no error");
  EXPECT_NE(hint_of("NCCL_P2P_LEVEL", "NEAR"), "no error");
}

}  // namespace
}  // namespace gpucast

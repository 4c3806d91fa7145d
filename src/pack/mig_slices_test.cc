#include "src/pack/mig_slices.h"

#include <gtest/gtest.h>

#include <vector>

#include "gpucast/gpu.h"

namespace gpucast::pack {
namespace {

// An A100: profiles 1g, 2g, 3g, 4g, 7g, numbered 1 to 5; eight units of memory.
TEST(MigSlices, LieWhereTheyLeaveMostRoom) {
  const std::vector<MigProfile> profiles = mig_profiles(find_gpu("a100-80"));
  MigSlices card;
  EXPECT_EQ(largest_free_profile(profiles, card.taken_units), 5);
  take_slice(profiles, 0, 7, &card);
  EXPECT_EQ(card.taken_units, 0b10000U) << "4g begins at 0, and stays free";
  EXPECT_EQ(largest_free_profile(profiles, card.taken_units), 4);
  take_slice(profiles, 0, 8, &card);
  EXPECT_EQ(card.taken_units, 0b110000U) << "next to the first";
  take_slice(profiles, 3, 9, &card);
  EXPECT_EQ(card.taken_units, 0b111111U);
  EXPECT_EQ(largest_free_profile(profiles, card.taken_units), 1) << "2g begins at 0, 2 or 4";
  release_slice(8, &card);
  EXPECT_EQ(card.taken_units, 0b011111U);
  release_slice(7, &card);
  release_slice(9, &card);
  EXPECT_EQ(card.taken_units, 0U);
  EXPECT_TRUE(card.slices.empty());
}

}  // namespace
}  // namespace gpucast::pack

#include "src/kernels/known_kernels.h"

#include <gtest/gtest.h>

#include <string>

namespace gpucast {
namespace {

const std::string kCub = "_ZN14at_cuda_detail3cub6detail";

TEST(KnownKernels, AreFoundByTheirLastIdentifier) {
  EXPECT_TRUE(is_known_kernel(kCub + "10radix_sort29DeviceRadixSortOnesweepKernelINS1_5radix10policy_hubIlNS0_8NullTypeEyE10Policy1000E"));
  EXPECT_TRUE(is_known_kernel("_ZN2at6native12_GLOBAL__N_124krn_partials_per_segmentIlEEvPT_PKS3_S6_l"));
  EXPECT_TRUE(is_known_kernel("_ZN2at6native6mbtopk18computeDigitCumSumEPsPjj"));
  EXPECT_FALSE(is_known_kernel("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"));
  for (const char* name : {"", "_Z", "_ZN", "_ZN99write_indices", "_ZN99999999999999999999write_indices", "13write_indices"})
    EXPECT_FALSE(is_known_kernel(name)) << name;
}

// 342 blocks of 384 threads sort 1,575,936 keys of 8 bytes with values of 8 bytes.
TEST(KnownKernels, APassOfASortMovesItsTiles) {
  const auto pass = known_kernel(kCub + "10radix_sort29DeviceRadixSortOnesweepKernelINS1_5radix10policy_hub", {342, 1, 1}, {384, 1, 1});
  ASSERT_TRUE(pass);
  EXPECT_EQ(pass->kind, OperationKind::indexing);
  EXPECT_EQ(pass->sorted_elements, 342 * 384 * 12);
  EXPECT_EQ(pass->bytes_read, 342 * 384 * 12 * 16);
  EXPECT_EQ(pass->bytes_written, pass->bytes_read);
  EXPECT_EQ(pass->waiting_threads, 342 * 384);
  EXPECT_FALSE(known_kernel("_ZN2at6native13reduce_kernelILi512E", {1, 1, 1}, {1, 1, 1}));
}

// apex's FusedAdam: gradient, parameter and two moments of a chunk of 65,536 elements in each block.
TEST(KnownKernels, AListsFunctorSaysWhatAnElementMoves) {
  const std::string apply = "_Z25multi_tensor_apply_kernelI18TensorListMetadataILi";
  const auto adam = known_kernel(apply + "4EE11AdamFunctorIffEJffffff10adamMode_tfEEviPViT_T0_DpT1_", {320, 1, 1}, {512, 1, 1});
  ASSERT_TRUE(adam);
  EXPECT_EQ(adam->kind, OperationKind::optimizer);
  EXPECT_EQ(adam->bytes_read, 320 * 65536 * 16);
  EXPECT_EQ(adam->bytes_written, 320 * 65536 * 12);
  const auto scale = known_kernel(apply + "2EE12ScaleFunctorIN3c104HalfEfEJfEEviPViT_T0_DpT1_", {2, 1, 1}, {512, 1, 1});
  ASSERT_TRUE(scale);
  EXPECT_EQ(scale->bytes_read, 2 * 65536 * 2);
  EXPECT_EQ(scale->bytes_written, 2 * 65536 * 4);
  for (const std::string& name :
       {apply, apply + "4EE", apply + "4EE11AdamFunctor", apply + "4EE99AdamFunctor", apply + "4EE11AdamFunctorIN"})
    known_kernel(name, {1, 1, 1}, {1, 1, 1});
  EXPECT_FALSE(is_known_kernel(apply + "1EE12OtherFunctorIfEEvv"));
}

}  // namespace
}  // namespace gpucast

#include "src/work/kernel_form.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

Operation with_kernel(OperationKind kind, std::string_view name, uint32_t blocks = 7, uint32_t threads = 128) {
  Operation out;
  out.kind = kind;
  apply_kernel_form({name, {blocks, 1, 1}, {threads, 1, 1}}, &out);
  return out;
}

TEST(KernelForm, AnElementwiseKernelComputesAddressesOrReadsInOrder) {
  const auto indexed = [](std::string_view name) { return with_kernel(OperationKind::elementwise, name).indexed; };
  EXPECT_TRUE(indexed("_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocast"));
  EXPECT_FALSE(indexed("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctor"));
  EXPECT_FALSE(indexed("_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_"));
  Operation cat;
  cat.kind = OperationKind::copy;
  cat.indexed = true;
  apply_kernel_form({"_ZN2at6native40_GLOBAL__N__8_Shape_cu_49f7391c19CatArrayBatchedCopy", {1, 1, 1}, {1, 1, 1}}, &cat);
  EXPECT_TRUE(cat.indexed);
  EXPECT_FALSE(with_kernel(OperationKind::gemm, "_ZN2at6native18elementwise_kernelILi128").indexed);
}

TEST(KernelForm, ASoftmaxThatKeepsItsRowReadsItOnce) {
  const auto rereads = [](std::string_view name) { return with_kernel(OperationKind::normalization, name).rereads; };
  EXPECT_TRUE(rereads("_ZN2at6native43_GLOBAL__N__13_SoftMax_cu19cunn_SoftMaxForwardILi4EfffNS1_25LogSoftMaxForwardEpilogueE"));
  EXPECT_FALSE(rereads("_ZN2at6native43_GLOBAL__N__13_SoftMax_cu23cunn_SoftMaxForwardSmemILi4EfffNS1_25LogSoftMaxForwardEpilogueE"));
  EXPECT_FALSE(rereads("_ZN2at6native43_GLOBAL__N__13_SoftMax_cu22cunn_SoftMaxForwardRegIfffNS1_25LogSoftMaxForwardEpilogueE"));
  EXPECT_TRUE(rereads("_ZN2at6native43_GLOBAL__N__13_SoftMax_cu20cunn_SoftMaxBackwardILi4EfffNS1_26LogSoftMaxBackwardEpilogueE"));
}

TEST(KernelForm, ASoftmaxAlongAnotherDimensionHasAThreadForARow) {
  const std::string_view name = "_ZN2at6native43_GLOBAL__N__13_SoftMax_cu26cunn_SpatialSoftMaxForwardIN3c104HalfEfS3_iE";
  EXPECT_EQ(with_kernel(OperationKind::normalization, name, 64, 1024).spatial_threads, 65536);
  EXPECT_EQ(with_kernel(OperationKind::normalization, "_ZN12_GLOBAL__N_120softmax_warp_forwardIfffLi9E").spatial_threads, 0);
  EXPECT_TRUE(with_kernel(OperationKind::normalization, "_ZN2at6native22cunn_SoftMaxForwardRegIfff").in_registers);
}

TEST(KernelForm, ANormsKernelsShowTheRelease) {
  Operation norm;
  norm.kind = OperationKind::normalization;
  norm.sums_weights = norm.per_channel = true;
  const auto with = [&](std::string_view name) {
    Operation out = norm;
    apply_kernel_form({name, {7, 1, 1}, {128, 1, 1}}, &out);
    return out;
  };
  EXPECT_TRUE(with("_ZN2at6native53_GLOBAL__N__38layer_norm_grad_input_kernel_vectorizedIffLb0EEEvPKT_").sums_by_columns);
  EXPECT_FALSE(with("_ZN2at6native53_GLOBAL__N__38layer_norm_grad_input_kernel_vectorizedIffEEvPKT_").sums_by_columns);
  EXPECT_TRUE(with("_ZN2at6native49batch_norm_collect_statistics_channels_last_kernelINS0_3VarE").channels_last);
  EXPECT_FALSE(with("_ZN2at6native36batch_norm_collect_statistics_kernelINS0_3VarE").channels_last);
}

TEST(KernelForm, AnImagesElementsAreSharedByThreads) {
  Operation pool;
  pool.kind = OperationKind::elementwise;
  pool.element_work.elements = 1000;
  apply_kernel_form({"_ZN2at6native21max_pool_forward_nchwIfiEEv", {7, 2, 1}, {32, 4, 1}}, &pool);
  EXPECT_EQ(pool.waiting_threads, 7 * 2 * 128);
  const Operation mirrored = with_kernel(OperationKind::elementwise, "_ZN2at6native26_fft_conjugate_copy_kernelIN3c10", 7, 128);
  EXPECT_EQ(mirrored.element_work.elements, 7 * 128);
}

TEST(KernelForm, WeightsOf4BitsAreUnpackedForALargeProduct) {
  Operation product;
  product.kind = OperationKind::gemm;
  product.element_bytes = 2;
  product.gemm.m = 4096, product.gemm.n = 512, product.gemm.k = 256;
  Operation unpacking = product;
  apply_kernel_form({"_Z20kDequantizeBlockwiseI13__nv_bfloat16Li512ELi64ELi8ELi2EEvPfPhS1_PT_ii", {7, 1, 1}, {64, 1, 1}}, &unpacking);
  EXPECT_EQ(unpacking.kind, OperationKind::copy);
  EXPECT_EQ(unpacking.bytes_read, 512 * 256 / 2);
  EXPECT_EQ(unpacking.bytes_written, 512 * 256 * 2);
  apply_kernel_form({"_Z23gemm_4bit_sm80_m16n8k16I13__nv_bfloat16", {7, 1, 1}, {64, 1, 1}}, &product);
  EXPECT_EQ(product.kind, OperationKind::gemm);
}

TEST(KernelForm, OneBlockOfALossComputesAllRows) {
  const std::string_view name = "_ZN2at6native43_GLOBAL__N__10_NLLLoss_cu36nll_loss_forward_reduce_cuda_kernel_2dIfflEE";
  EXPECT_EQ(with_kernel(OperationKind::indexing, name, 1, 32).one_block_threads, 32);
  EXPECT_EQ(with_kernel(OperationKind::indexing, name, 16, 1024).one_block_threads, 0);
}

TEST(KernelForm, ATypeIsLookedUpForEachTensorOfAKernelWithCasts) {
  const auto casts = [](std::string_view name) { return with_kernel(OperationKind::elementwise, name).cast_tensors; };
  EXPECT_EQ(
      casts("_ZN2at6native27unrolled_elementwise_kernelINS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EELi4E23TrivialOffsetCalculatorILi2EjES8_"
            "ILi1EjENS0_6memory12LoadWithCastILi2EEENSB_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_"),
      3);
  EXPECT_EQ(casts("_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaENS_6detail5ArrayIPcLi2EEELi4E23Trivial"
                  "NS0_6memory12LoadWithCastILi1EEENSB_13StoreWithCastILi1EEEEEviT_"),
            2);
  EXPECT_EQ(casts("_ZN2at6native27unrolled_elementwise_kernelINS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EENS0_6memory15LoadWithoutCast"), 0);
  EXPECT_EQ(casts("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"), 0);
}

TEST(KernelForm, AlignedRowsMoveSixteenBytesAtOnce) {
  const std::string_view gather = "_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb";
  EXPECT_EQ(with_kernel(OperationKind::indexing, gather).moved_at_once, 16);
  EXPECT_EQ(with_kernel(OperationKind::indexing, gather, 4096).row_blocks, 4096);
  EXPECT_EQ(with_kernel(OperationKind::indexing, "_ZN2at6native18indexSelectLargeIndex").moved_at_once, 0);
  const std::string cat = "_ZN2at6native40_GLOBAL__N__8_Shape_cu_49f7391c";
  const auto moved = [&](const char* kernel) { return with_kernel(OperationKind::copy, cat + kernel).moved_at_once; };
  EXPECT_EQ(moved("30CatArrayBatchedCopy_vectorizedINS1_10OpaqueTypeILj2EEEjLi2ELi128ELi1ELi16ELi8EEEvPc"), 16);
  EXPECT_EQ(moved("35CatArrayBatchedCopy_alignedK_contigINS1_10OpaqueTypeILj4EEEjLi2ELi128ELi1ELi16EEEvPT_"), 16);
  EXPECT_EQ(moved("19CatArrayBatchedCopyINS1_10OpaqueTypeILj4EEEjLi2ELi64ELi64EEEvPT_"), 0);
}

// 1,000 rows of 4,096 columns: 32 blocks of 128 threads, four columns and four rows each at once. 13 blocks of a column's 4 threads leave
// 13 parts, which 4 threads add.
TEST(KernelForm, SumsWaitForTheirLoads) {
  Operation sum;
  sum.kind = OperationKind::reduction;
  sum.rows = 4096, sum.columns = 1000, sum.strided = true;
  const std::string name = "_ZN2at6native13reduce_kernelILi128ELi4ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_functorIfffEclE";
  Operation one = sum;
  apply_kernel_form({name, {32, 1, 1}, {32, 4, 1}}, &one);
  EXPECT_EQ(one.waited_loads, 63);
  EXPECT_EQ(one.waiting_threads, 4096);
  EXPECT_EQ(one.merged_loads, 0);
  Operation parts = sum;
  apply_kernel_form({name, {32, 13, 1}, {32, 4, 1}}, &parts);
  EXPECT_EQ(parts.waited_loads, 5);
  EXPECT_EQ(parts.merged_loads, 4);
  parts.strided = false;
  apply_kernel_form({name, {32, 13, 1}, {32, 4, 1}}, &parts);
  EXPECT_EQ(parts.merged_loads, 1);
  apply_kernel_form({"_ZN2at6native13reduce_kernelILi128ELi4ENS0_8ReduceOpIfNS0_9ArgMaxOpsIfEEjlLi4EEEEEvT1_", {32, 1, 1}, {32, 4, 1}},
                    &one);
  EXPECT_EQ(one.waited_loads, 126);
}

// aten/src/ATen/native/cuda/ScanUtils.cuh.
TEST(KernelForm, AScanWaitsForItsLoadsAndSteps) {
  Operation scan;
  scan.kind = OperationKind::indexing;
  scan.rows = 1664, scan.columns = 768;
  Operation rows = scan;  // 16 threads load 32 columns at once, and add them in five steps
  apply_kernel_form({"_ZN2at6native32tensor_kernel_scan_innermost_dimIlSt4plusIlEEEvPT_PKS4_jjjS4_T0_", {52, 1, 1}, {16, 32, 1}}, &rows);
  EXPECT_EQ(rows.waited_loads, 24);
  EXPECT_EQ(rows.waited_steps, 24 * 7);
  EXPECT_EQ(rows.waiting_threads, 52 * 512);
  Operation outer = scan;
  apply_kernel_form({"_ZN2at6native28tensor_kernel_scan_outer_dimIfjSt4plusIfEEEvPT_PKS4_jjjS4_T1_", {1, 26, 1}, {64, 1, 1}}, &outer);
  EXPECT_EQ(outer.waited_loads, 768);
  EXPECT_EQ(outer.waited_steps, 0);
}

TEST(KernelForm, ABlockOfASelectionGoesThroughItsRowForEachTwoBits) {
  Operation median;
  median.kind = OperationKind::reduction;
  median.rows = 202, median.columns = 1024;
  apply_kernel_form(
      {"_ZN2at6native43_GLOBAL__N__0_Sorting_cu_0_012gatherMedianIfjLi2EEEvNS_4cuda6detail10TensorInfo", {202, 1, 1}, {1024, 1, 1}},
      &median);
  EXPECT_EQ(median.kind, OperationKind::indexing);
  EXPECT_EQ(median.waited_steps, 16 * 2 + 16 * 1024 / 384);
  EXPECT_EQ(median.waiting_threads, 202 * 1024);
  Operation topk;
  topk.kind = OperationKind::indexing;
  topk.rows = 942, topk.columns = 300;
  apply_kernel_form({"_ZN2at6native6sbtopk10gatherTopKIfjLi2ELb0EEEvNS_4cuda6detail10TensorInfo", {942, 1, 1}, {128, 1, 1}}, &topk);
  EXPECT_EQ(topk.waited_steps, 16 * (2 + 2) + 16 * 128 / 384 + 32);
}

TEST(KernelForm, AThreadWaitsForTheIndexOfEachElement) {
  Operation gather;
  gather.kind = OperationKind::indexing;
  gather.bytes_written = 4 * 66 * 1024;
  const std::string_view name = "_ZN2at6native33_scatter_gather_elementwise_kernelILi128ELi8EZNS0_36_cuda_scatter_gather_internal_kernel";
  Operation all = gather, few = gather;
  apply_kernel_form({name, {66, 1, 1}, {128, 1, 1}}, &all);
  EXPECT_EQ(all.waited_loads, 16);
  EXPECT_EQ(all.waited_steps, 8);
  few.bytes_written = 4 * 100;
  apply_kernel_form({name, {1, 1, 1}, {128, 1, 1}}, &few);
  EXPECT_EQ(few.waited_loads, 2);
}

TEST(KernelForm, AWarpAddsTheRowsOfAnIndex) {
  Operation put;
  put.kind = OperationKind::indexing;
  put.rows = 20000, put.columns = 2000;  // of 20,000 random indices into 2,000 places, 10 are equal
  apply_kernel_form({"_ZN58_GLOBAL__N__0_Indexing_cu_024indexing_backward_kernelIfLi4EEEvPKlS2_PKT_PS3_llllb", {5000, 1, 1}, {32, 4, 1}},
                    &put);
  EXPECT_EQ(put.waited_loads, 24);
  EXPECT_EQ(put.waiting_threads, 5000 * 128);
}

TEST(KernelForm, GeneratorsDrawFourNumbersAtOnce) {
  Operation fill;
  fill.kind = OperationKind::elementwise;
  fill.bytes_written = 4'000'000;
  apply_kernel_form(
      {"_ZN2at6native43_GLOBAL__N__0_DistributionNormal_cu_043distribution_elementwise_grid_stride_kernelIfLi4E", {100, 1, 1}, {256, 1, 1}},
      &fill);
  EXPECT_EQ(fill.draws, 25600 * (10 + 2));
  EXPECT_EQ(
      with_kernel(OperationKind::elementwise, "_ZN50_GLOBAL__N__0_RangeFactories_cu_029elementwise_kernel_with_indexIiZ", 9).row_blocks, 9);
}

}  // namespace
}  // namespace gpucast

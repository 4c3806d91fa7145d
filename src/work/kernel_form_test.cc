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

}  // namespace
}  // namespace gpucast

#include "src/work/kernel_form.h"

#include <algorithm>

namespace gpucast {
namespace {

int64_t product(const std::array<uint32_t, 3>& sizes) {
  int64_t out = 1;
  for (const uint32_t size : sizes) out *= std::max(1U, size);
  return out;
}

}  // namespace

Operation launch_of(const Operation& operation) {
  Operation out;
  out.kind = operation.kind == OperationKind::optimizer ? OperationKind::optimizer : OperationKind::elementwise;
  out.precision = operation.precision;
  out.element_bytes = operation.element_bytes;
  return out;
}

void apply_kernel_form(const FirstKernel& kernel, Operation* operation) {
  const auto is = [&](std::string_view part) { return kernel.name.find(part) != std::string_view::npos; };
  // aten/src/ATen/native/cuda/CUDALoops.cuh: elementwise_kernel computes each element's address in each tensor; the two others read and
  // write all tensors in one order.
  if (operation->kind == OperationKind::elementwise || operation->kind == OperationKind::copy) {
    if (is("vectorized_elementwise_kernel") || is("unrolled_elementwise_kernel")) {
      operation->indexed = false;
    } else if (is("native18elementwise_kernel")) {
      operation->indexed = true;
    }
  }
  // bitsandbytes unpacks weights for large products, which are then a library's call.
  if (operation->kind == OperationKind::gemm && is("kDequantizeBlockwise")) {
    const int64_t weights = operation->gemm.n * operation->gemm.k;
    Operation unpacking = launch_of(*operation);
    unpacking.kind = OperationKind::copy;
    unpacking.bytes_read = weights / 2;
    unpacking.bytes_written = weights * operation->element_bytes;
    unpacking.launches = operation->launches;
    *operation = unpacking;
  }
  // aten/src/ATen/native/cuda/SoftMax.cu.
  if (is("cunn_SoftMaxForward") || is("cunn_SoftMaxBackward")) operation->rereads = !is("ardSmem") && !is("ardReg");
  // aten/src/ATen/native/cuda/Loss.cu: with a reduction, one block computes all rows.
  if (is("nll_loss") && product(kernel.grid) == 1) operation->one_block_threads = product(kernel.block);
}

}  // namespace gpucast

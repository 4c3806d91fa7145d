#include "src/work/kernel_form.h"

#include <algorithm>
#include <bit>

#include "src/base/bounded.h"

namespace gpucast {
namespace {

constexpr int64_t kVectorBytes = 16;

int64_t product(const std::array<uint32_t, 3>& sizes) {
  int64_t out = 1;
  for (const uint32_t size : sizes) out *= std::max(1U, size);
  return out;
}

int64_t parts_of(int64_t whole, int64_t part) { return whole / part + (whole % part > 0 ? 1 : 0); }

// The digit that follows `part` in a mangled name; 0: there is none.
int64_t number_after(std::string_view part, std::string_view name) {
  const size_t at = name.find(part);
  const char digit = at == std::string_view::npos || at + part.size() >= name.size() ? '0' : name[at + part.size()];
  return digit >= '0' && digit <= '9' ? digit - '0' : 0;
}

// aten/src/ATen/native/cuda/Reduce.cuh: a thread has four loads on the way, each of `vector` elements, and adds them before the next four.
// Columns are summed by the threads of a block's y; rows by all of them.
void set_waits_of_sums(const FirstKernel& kernel, Operation* operation) {
  constexpr std::string_view kName = "reduce_kernelILi";
  constexpr int64_t kLoads = 4;
  const size_t at = kernel.name.find(kName);
  if (at == std::string_view::npos) return;
  const int64_t vector = std::max<int64_t>(1, number_after("ELi", kernel.name.substr(at)));
  const int64_t threads = product(kernel.block), elements = bounded_product({operation->rows, operation->columns});
  operation->waiting_threads = bounded_product({product(kernel.grid), threads});
  operation->waited_loads = parts_of(elements, bounded_product({operation->waiting_threads, kLoads, vector}));
  // Largest or smallest numbers with their places, and variances: a thread computes two numbers.
  for (const std::string_view two : {"MaxOps", "MinOps", "WelfordOps"})
    if (kernel.name.find(two) != std::string_view::npos) operation->waited_loads *= 2;
  const int64_t parts = kernel.grid[1];  // of a sum: blocks
  if (parts > 1) operation->merged_loads = parts_of(parts, operation->strided ? std::max<int64_t>(1, kernel.block[1]) : threads);
}

// aten/src/ATen/native/cuda/ScanUtils.cuh: threads of x load two parts of a row, which they add in steps; along another dimension a thread
// adds one element after another. A tensor of one dimension is scanned by CUB.
void set_waits_of_scan(const FirstKernel& kernel, Operation* operation) {
  const auto is = [&](std::string_view part) { return kernel.name.find(part) != std::string_view::npos; };
  if (is("tensor_kernel_scan_innermost_dim")) {
    const int64_t width = 2 * std::max<int64_t>(1, kernel.block[0]);
    operation->waited_loads = parts_of(operation->columns, width);
    operation->waited_steps = operation->waited_loads * (std::bit_width(static_cast<uint64_t>(width)) + 1);
  } else if (is("tensor_kernel_scan_outer_dim")) {
    operation->waited_loads = operation->columns;
  } else if (is("DeviceScan")) {
    operation->waited_loads = 1;
  } else {
    return;
  }
  operation->waiting_threads = bounded_product({product(kernel.grid), product(kernel.block)});
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
  // cat() and rows by their indices: a thread moves 16 bytes at once where all tensors are aligned.
  if (operation->kind == OperationKind::copy && (is("CatArrayBatchedCopy_vectorized") || is("CatArrayBatchedCopy_aligned")))
    operation->moved_at_once = kVectorBytes;
  if (operation->kind == OperationKind::indexing && is("vectorized_gather_kernel")) {
    operation->moved_at_once = kVectorBytes;
    operation->row_blocks = product(kernel.grid);
  }
  if (operation->kind == OperationKind::indexing) set_waits_of_scan(kernel, operation);
  if (operation->kind == OperationKind::reduction) set_waits_of_sums(kernel, operation);
  if (operation->kind == OperationKind::elementwise || operation->kind == OperationKind::copy) {
    // LoadWithCast looks up the type of each element of each tensor.
    if (is("unrolled_elementwise_kernel") && is("LoadWithCast"))
      operation->cast_tensors = std::max(number_after("rrayIPcLm", kernel.name), number_after("rrayIPcLi", kernel.name));
    // aten/src/ATen/native/cuda/CUDALoops.cuh: elementwise_kernel computes each element's address in each tensor; the two others read and
    // write all tensors in one order.
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
  operation->in_registers = is("cunn_SoftMaxForwardReg");
  if (is("cunn_SpatialSoftMax")) operation->spatial_threads = bounded_product({product(kernel.grid), product(kernel.block)});
  // aten/src/ATen/native/cuda/Normalization.cuh.
  operation->channels_last = operation->per_channel && is("channels_last");
  // aten/src/ATen/native/cuda/layer_norm_kernel.cu: releases in which this kernel is also for RMS norms have the new kernel for sums.
  operation->sums_by_columns = operation->sums_weights && is("layer_norm_grad_input_kernel") && (is("Lb0E") || is("Lb1E"));
  // aten/src/ATen/native/cuda/Loss.cu: with a reduction, one block computes all rows.
  if (is("nll_loss") && product(kernel.grid) == 1) operation->one_block_threads = product(kernel.block);
}

}  // namespace gpucast

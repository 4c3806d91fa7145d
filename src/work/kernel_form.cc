#include "src/work/kernel_form.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/base/bounded.h"

namespace gpucast {
namespace {

constexpr int64_t kVectorBytes = 16;

int64_t product(const std::array<uint32_t, 3>& sizes) {
  int64_t out = 1;
  for (const uint32_t size : sizes) out *= std::max(1U, size);
  return out;
}

int64_t threads_of(const FirstKernel& kernel) { return bounded_product({product(kernel.grid), product(kernel.block)}); }

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
// adds one element after another.
void set_waits_of_scan(const FirstKernel& kernel, Operation* operation) {
  const auto is = [&](std::string_view part) { return kernel.name.find(part) != std::string_view::npos; };
  if (is("tensor_kernel_scan_innermost_dim")) {
    const int64_t width = 2 * std::max<int64_t>(1, kernel.block[0]);
    operation->waited_loads = parts_of(operation->columns, width);
    operation->waited_steps = operation->waited_loads * (std::bit_width(static_cast<uint64_t>(width)) + 1);
  } else if (is("tensor_kernel_scan_outer_dim")) {
    operation->waited_loads = operation->columns;
  } else {
    return;
  }
  operation->waiting_threads = threads_of(kernel);
}

// aten/src/ATen/native/cuda/SortingRadixSelect.cuh: a block finds the k-th number of its row by two bits of all numbers at a time. The
// first k numbers are then sorted by another kernel. mbtopk: a row has several blocks, whose kernels are known (src/kernels).
void set_waits_of_selection(const FirstKernel& kernel, Operation* operation) {
  const auto is = [&](std::string_view part) { return kernel.name.find(part) != std::string_view::npos; };
  constexpr int64_t kSortSteps = 32;
  const int64_t passes = int64_t{4} * operation->element_bytes, threads = product(kernel.block);
  const bool median = is("gatherMedian") || is("gatherKthValue");
  if (median || is("6sbtopk10gatherTopK")) {
    // Wider blocks wait longer at their barriers.
    constexpr int64_t kSteps = 2, kThreadsOfAStep = 384;
    const int64_t again = parts_of(operation->columns, threads) - 1;
    operation->waited_steps = passes * (kSteps + again) + passes * threads / kThreadsOfAStep + (median ? 0 : kSortSteps);
    operation->waiting_threads = threads_of(kernel);
  } else if (is("6mbtopk4fill")) {
    constexpr int64_t kThreads = 256, kGatherSteps = 24;
    operation->waited_steps = kGatherSteps + kSortSteps;
    operation->waiting_threads = bounded_product({operation->rows, kThreads});
  } else {
    return;
  }
  operation->kind = OperationKind::indexing;
  operation->waited_loads = 1;
}

// If indices are random.
double rows_of_an_index(int64_t rows, int64_t places) {
  if (rows <= 0 || places <= 0) return 1;
  const double each = static_cast<double>(rows) / static_cast<double>(places);
  return each / -std::expm1(-each);
}

// aten/src/ATen/native/cuda/ScatterGatherKernel.cu, IndexKernel.cu, Indexing.cu, Bucketization.cu, EmbeddingBackwardKernel.cu.
void set_waits_of_indexing(const FirstKernel& kernel, Operation* operation) {
  const auto is = [&](std::string_view part) { return kernel.name.find(part) != std::string_view::npos; };
  const int64_t elements = operation->bytes_written / std::max(1, operation->element_bytes);
  // Each element of a thread waits for its index, then for itself.
  const int64_t each = std::clamp<int64_t>(parts_of(elements, threads_of(kernel)), 1, 8);
  if (is("_scatter_gather_elementwise_kernel")) {
    operation->waited_loads = 2 * each;
    operation->waited_steps = each;
  } else if (is("index_elementwise_kernel")) {
    operation->waited_loads = 10;
    operation->waited_steps = 5;
  } else if (is("indexing_backward_kernel_s")) {
    operation->waited_loads = 5;
  } else if (is("24indexing_backward_kernelI")) {
    // One warp adds all rows of an index, one after another, with 2.4 loads each; the others of its block end at once.
    operation->waited_loads = std::llround(2.4 * rows_of_an_index(operation->rows, operation->columns));
  } else if (is("kernelHistogram1D")) {
    // A thread waits for its element, then adds to the block's counts.
    const int64_t rounds = parts_of(operation->bytes_read / std::max(1, operation->element_bytes), threads_of(kernel));
    operation->waited_loads = operation->waited_steps = rounds;
  } else if (is("searchsorted_cuda_kernel")) {
    operation->waited_loads = std::bit_width(static_cast<uint64_t>(operation->columns));
  } else if (is("embedding_backward_feature_kernel")) {
    // All threads go through the indices, 32 at a time.
    operation->waited_loads = 2 * parts_of(operation->rows, 32);
    operation->waited_steps = parts_of(operation->rows, 32);
  } else {
    return;
  }
  operation->waiting_threads = threads_of(kernel);
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
  if (operation->kind == OperationKind::indexing) {
    set_waits_of_scan(kernel, operation);
    set_waits_of_indexing(kernel, operation);
  }
  if (operation->kind == OperationKind::indexing || operation->kind == OperationKind::reduction) set_waits_of_selection(kernel, operation);
  if (operation->kind == OperationKind::reduction) set_waits_of_sums(kernel, operation);
  if (operation->kind == OperationKind::elementwise) {
    // aten/src/ATen/native/cuda/DistributionTemplates.h: a thread calls the generator for each four numbers, or two of 64 bits, which cost
    // twice as much. Its begin, which goes to its place in the sequence, costs as much as two calls.
    if (is("distribution_elementwise_grid_stride_kernel")) {
      const int64_t numbers = is("grid_stride_kernelImLi2") || is("grid_stride_kernelIdLi2") ? 2 : 4;
      const int64_t elements = operation->bytes_written / std::max(1, operation->element_bytes);
      const int64_t calls = parts_of(elements, bounded_product({threads_of(kernel), numbers}));
      operation->draws = bounded_product({threads_of(kernel), 2 + calls * 4 / numbers});
    }
    if (is("elementwise_kernel_with_index")) operation->row_blocks = product(kernel.grid);
  }
  // SpectralOps.cu: the half of a spectrum that mirrors the other. A thread computes two places, in three dimensions.
  if (is("_fft_conjugate_copy_kernel")) operation->element_work = {.elements = threads_of(kernel), .waited_loads = 1, .divisions = 6};
  if (operation->element_work.elements > 0) operation->waiting_threads = threads_of(kernel);
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

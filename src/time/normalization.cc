#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"

namespace gpucast {
namespace {

// aten/src/ATen/native/cuda/SoftMax.cu: from 1,025 columns on, a block of up to 1,024 threads computes a row.
constexpr double kThreads = 1024, kThreadBytes = 16;  // of a load of a thread

// A wider row takes more rounds of all threads, in each of the three passes. Two blocks share a multiprocessor, so half of the waiting
// counts.
RowConstants long_softmax(const Operation& operation, const RowConstants& rows) {
  RowConstants out = rows;
  const auto columns = static_cast<double>(operation.columns);
  const double round = kThreads * kThreadBytes / std::max(1, operation.element_bytes), more = std::max(0.0, columns - round);
  const double round_cycles = 3 * kLoadCycles / 2;
  out.element_cycles = (rows.element_cycles * std::min(columns, round) + more / round * round_cycles) / columns;
  return out;
}

// A block that does not keep its row reads a tensor `again` more times. L2 still has the row if it holds what all blocks at work read and
// write.
Estimate softmax_time(const Operation& operation, int again, const CardRates& card) {
  const NormalizationConstants& c = card.normalization[operation.precision];
  if (operation.columns <= 1024) return time_by_rows(operation, c.short_softmax, card);
  Operation whole = operation;
  if (operation.rereads) {
    const double row_bytes = static_cast<double>(operation.columns) * operation.element_bytes;
    const double tensors = operation.pass == Pass::forward ? 2 : 3,
                 blocks = std::min(static_cast<double>(operation.rows), 2.0 * card.multiprocessors);
    whole.bytes_read +=
        std::llround(again * beyond_l2(blocks * row_bytes * tensors, card) * static_cast<double>(operation.rows) * row_bytes);
  }
  return time_by_rows(whole, long_softmax(operation, c.long_softmax), card);
}

}  // namespace

// The bytes show which normalization it is. Softmax has neither weights nor statistics; layer, group and batch norm write statistics for
// their backward; an RMS norm may write none.
Estimate normalization_time(const Operation& operation, const CardRates& card) {
  const NormalizationConstants& c = card.normalization[operation.precision];
  if (operation.rows <= 0 || operation.columns <= 0) return time_by_bytes(operation, card);
  if (operation.per_channel) {
    // Both passes read their inputs twice: for the channels' sums, and for the output.
    const BytesConstants& moved = card.bytes[operation.kind];
    // Mixed precision computes in fp32, but its tensors have two bytes an element, so the kernels for two bytes run.
    const NormalizationConstants& stored = operation.element_bytes == 2 ? card.normalization[Precision::fp16] : c;
    const double passes = operation.pass == Pass::forward ? stored.batch_passes : stored.batch_backward_passes;
    const auto bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
    const double moved_ns = moving_ns(bytes, passes, moved.dram_fraction, card);
    // One block of threads computes a channel, and it can read only this much in a cycle.
    const double blocks_ns = 1e9 * bytes * passes / (static_cast<double>(operation.rows) * stored.channel_bytes_per_cycle * card.clock_hz);
    const double ns = std::max(moved_ns, blocks_ns);
    const double floor_ns = std::max<double>(1, static_cast<double>(operation.launches)) * moved.floor_ns;
    return {ns + floor_ns, floor_ns > ns ? Bound::launch : blocks_ns > moved_ns ? Bound::tail : Bound::memory};
  }
  const double tensor_bytes = static_cast<double>(operation.rows) * static_cast<double>(operation.columns) * operation.element_bytes;
  const auto read = static_cast<double>(operation.bytes_read), written = static_cast<double>(operation.bytes_written);
  if (operation.pass != Pass::forward) {
    // Softmax reads its output and a gradient. If it is not a log_softmax, a separate kernel first multiplies them.
    const bool softmax = read == 2 * tensor_bytes && written == tensor_bytes;
    if (softmax) {
      Operation whole = operation;
      if (!operation.log_softmax) whole.bytes_read *= 2, whole.bytes_written *= 2, whole.launches *= 2;
      return softmax_time(whole, 1, card);
    }
    RowConstants rows = c.layer;
    rows.passes = c.backward_passes;
    Estimate out = time_by_rows(operation, rows, card);
    // aten/src/ATen/native/cuda/layer_norm_kernel.cu, GammaBetaBackward: goes down the columns, and is slower than its bytes.
    if (operation.sums_weights)
      out.ns += 1e9 * tensor_bytes / operation.element_bytes * c.weight_sum_cycles / (card.multiprocessors * card.clock_hz);
    return out;
  }
  if (read == tensor_bytes && written == tensor_bytes) return softmax_time(operation, 2, card);
  return time_by_rows(operation, written > tensor_bytes ? c.layer : c.plain, card);
}

}  // namespace gpucast

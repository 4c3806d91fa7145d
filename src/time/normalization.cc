#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"

namespace gpucast {
namespace {

// aten/src/ATen/native/cuda/SoftMax.cu: from 1,025 columns on, a block of up to 1,024 threads computes a row.
constexpr double kThreads = 1024, kThreadBytes = 16;  // of a load of a thread
constexpr double kBlocks = 2;                         // on a multiprocessor

// A wider row takes more rounds of all threads, in each of the three passes. Two blocks share a multiprocessor, so half of the waiting
// counts.
RowConstants long_softmax(const Operation& operation, const RowConstants& rows) {
  RowConstants out = rows;
  const auto columns = static_cast<double>(operation.columns);
  const double round = kThreads * kThreadBytes / std::max(1, operation.element_bytes), more = std::max(0.0, columns - round);
  const double round_cycles = 3 * kLoadCycles / kBlocks;
  out.element_cycles = (rows.element_cycles * std::min(columns, round) + more / round * round_cycles) / columns;
  // With more than a few elements in each thread's registers, a multiprocessor holds one block: nothing is loaded while it computes.
  constexpr double kFewRegisters = 4;
  if (operation.in_registers && columns > kFewRegisters * kThreads) out.overlap = 1;
  return out;
}

// A thread goes through its rows one element after another, with a load for each, in each of its `passes`.
Estimate spatial_softmax(const Operation& operation, double passes, const CardRates& card) {
  const Estimate moved = time_by_bytes(operation, card);
  const double elements = std::ceil(static_cast<double>(operation.rows) * static_cast<double>(operation.columns) /
                                    static_cast<double>(operation.spatial_threads));
  const double held = static_cast<double>(card.multiprocessors) * card.threads;
  const double waves = std::ceil(static_cast<double>(operation.spatial_threads) / held);
  const double ns = card.bytes[operation.kind].floor_ns + 1e9 * waves * elements * passes * kLoadCycles / card.clock_hz;
  return ns > moved.ns ? Estimate{ns, Bound::tail} : moved;
}

// A block that does not keep its row reads a tensor `again` more times. L2 still has the row if it holds what all blocks at work read and
// write.
Estimate softmax_time(const Operation& operation, int again, const CardRates& card) {
  const NormalizationConstants& c = card.normalization[operation.precision];
  if (operation.spatial_threads > 0) return spatial_softmax(operation, 1 + again, card);
  if (operation.columns <= 1024) return time_by_rows(operation, c.short_softmax, card);
  Operation whole = operation;
  if (operation.rereads) {
    const double row_bytes = static_cast<double>(operation.columns) * operation.element_bytes;
    const double tensors = operation.pass == Pass::forward ? 2 : 3,
                 blocks = std::min(static_cast<double>(operation.rows), kBlocks * card.multiprocessors);
    const double gone = beyond_l2(blocks * row_bytes * tensors, card, c.reread_full, c.reread_none);
    whole.bytes_read += std::llround(again * gone * static_cast<double>(operation.rows) * row_bytes);
  }
  return time_by_rows(whole, long_softmax(operation, c.long_softmax), card);
}

// PyTorch's own kernels for channels-last tensors: one computes the sums, another writes the output.
Estimate channels_last_time(const Operation& operation, const NormalizationConstants& c, const CardRates& card) {
  const BytesConstants& moved = card.bytes[operation.kind];
  const bool forward = operation.pass == Pass::forward;
  const auto read = static_cast<double>(operation.bytes_read), written = static_cast<double>(operation.bytes_written);
  const double read_ns = moving_ns(read, 1, moved.dram_fraction, card);
  const double sums_ns = 1e9 * static_cast<double>(operation.rows) * static_cast<double>(operation.columns) *
                         (forward ? c.statistics_cycles : c.statistics_backward_cycles) / (card.multiprocessors * card.clock_hz);
  const double ns = std::max(read_ns, sums_ns) + moving_ns(read + written, c.statistics_passes, moved.dram_fraction, card);
  const double floor_ns = std::max<double>(1, static_cast<double>(operation.launches)) * moved.floor_ns;
  return {ns + floor_ns, floor_ns > ns ? Bound::launch : sums_ns > read_ns ? Bound::compute : Bound::memory};
}

Estimate batch_norm_time(const Operation& operation, const CardRates& card) {
  // Both passes read their inputs twice: for the channels' sums, and for the output.
  const BytesConstants& moved = card.bytes[operation.kind];
  // Mixed precision computes in fp32, but its tensors have two bytes an element, so the kernels for two bytes run.
  const NormalizationConstants& c = card.normalization[operation.element_bytes == 2 ? Precision::fp16 : operation.precision];
  if (operation.channels_last) return channels_last_time(operation, c, card);
  const bool forward = operation.pass == Pass::forward;
  const double passes = forward ? c.batch_passes : c.batch_backward_passes;
  const auto bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  const double moved_ns = moving_ns(bytes, passes, moved.dram_fraction, card);
  // One block of threads computes a channel, and it can read only this much in a cycle.
  const double rate = forward ? c.channel_bytes_per_cycle : c.channel_backward_bytes_per_cycle;
  constexpr double kChannelThreads = 512;
  const auto channels = static_cast<double>(operation.rows);
  const double waves = std::ceil(channels / (card.multiprocessors * std::max(1.0, std::floor(card.threads / kChannelThreads))));
  const double kept = forward ? c.kept_elements : c.kept_backward_elements;
  const double block_passes = static_cast<double>(operation.columns) <= kept ? 1 : passes;
  const double blocks_ns = 1e9 * (bytes * block_passes / (channels * rate) + waves * c.channel_cycles) / card.clock_hz;
  const double ns = std::max(moved_ns, blocks_ns);
  const double floor_ns = std::max<double>(1, static_cast<double>(operation.launches)) * moved.floor_ns;
  return {ns + floor_ns, floor_ns > ns ? Bound::launch : blocks_ns > moved_ns ? Bound::tail : Bound::memory};
}

// aten/src/ATen/native/cuda/layer_norm_kernel.cu, GammaBetaBackward: goes down the columns, slower than the memory's rate. In new releases
// a block has 32 columns and all rows, so there may be fewer blocks than multiprocessors; with many rows, and columns for less than half of
// the multiprocessors, several blocks share the rows.
double weight_sums_ns(const Operation& operation, const NormalizationConstants& c, const CardRates& card) {
  constexpr double kColumns = 32, kManyRows = 64 * 1024, kTensors = 2;
  const auto rows = static_cast<double>(operation.rows), columns = static_cast<double>(operation.columns);
  if (!operation.sums_by_columns) return 1e9 * rows * columns * c.weight_sum_cycles / (card.multiprocessors * card.clock_hz);
  const double blocks = std::ceil(columns / kColumns);
  const bool shared = rows > kManyRows && std::floor(columns / kColumns) < std::floor(card.multiprocessors / 2);
  const double busy = shared ? card.multiprocessors : std::min<double>(card.multiprocessors, blocks);
  return std::max(1e9 * rows * blocks * c.weight_row_cycles / (busy * card.clock_hz),
                  moving_ns(kTensors * rows * columns * operation.element_bytes, 1, card.bytes[operation.kind].dram_fraction, card));
}

}  // namespace

// The bytes show which normalization it is. Softmax has neither weights nor statistics; layer, group and batch norm write statistics for
// their backward; an RMS norm may write none.
Estimate normalization_time(const Operation& operation, const CardRates& card) {
  const NormalizationConstants& c = card.normalization[operation.precision];
  if (operation.rows <= 0 || operation.columns <= 0) return time_by_bytes(operation, card);
  if (operation.per_channel) return batch_norm_time(operation, card);
  const double tensor_bytes = static_cast<double>(operation.rows) * static_cast<double>(operation.columns) * operation.element_bytes;
  const auto read = static_cast<double>(operation.bytes_read), written = static_cast<double>(operation.bytes_written);
  if (operation.pass != Pass::forward) {
    // Softmax reads its output and a gradient; aten::mul before it, if it is no log_softmax, is an operation of its own.
    if (read == 2 * tensor_bytes && written == tensor_bytes) return softmax_time(operation, 1, card);
    RowConstants rows = c.layer;
    rows.passes = c.backward_passes;
    rows.row_cycles *= c.layer_backward_rows;
    Estimate out = time_by_rows(operation, rows, card);
    if (operation.sums_weights) out.ns += weight_sums_ns(operation, c, card);
    return out;
  }
  if (read == tensor_bytes && written == tensor_bytes) return softmax_time(operation, 2, card);
  return time_by_rows(operation, written > tensor_bytes ? c.layer : c.plain, card);
}

}  // namespace gpucast

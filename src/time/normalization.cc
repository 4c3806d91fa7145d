#include <algorithm>

#include "src/time/kinds.h"

namespace gpucast {

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
    // Softmax reads its output and a gradient, and first multiplies them in a separate kernel.
    const bool softmax = read == 2 * tensor_bytes && written == tensor_bytes;
    if (softmax) {
      Operation twice = operation;
      twice.bytes_read *= 2, twice.bytes_written *= 2, twice.launches *= 2;
      return time_by_rows(twice, operation.columns <= 1024 ? c.short_softmax : c.long_softmax, card);
    }
    RowConstants rows = c.layer;
    rows.passes = c.backward_passes;
    return time_by_rows(operation, rows, card);
  }
  if (read == tensor_bytes && written == tensor_bytes) {
    return time_by_rows(operation, operation.columns <= 1024 ? c.short_softmax : c.long_softmax, card);
  }
  return time_by_rows(operation, written > tensor_bytes ? c.layer : c.plain, card);
}

}  // namespace gpucast

// Shared by the kinds that are bound by memory: bytes at the rate of L2 or of device memory, rows at the rate of multiprocessors.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "src/time/kinds.h"

namespace gpucast {

namespace {

// The time to read the part of `bytes` that is in device memory. Bytes that fit into L2 are most likely still there after the operation
// before; of a larger tensor, the oldest bytes have been replaced when they are read.
double dram_ns(double bytes, double passes, double dram_fraction, const CardRates& card) {
  return 1e9 * bytes * passes * beyond_l2(bytes, card) / (card.dram_bytes_per_s * dram_fraction);
}

}  // namespace

double together_ns(double a, double b, double overlap) {
  const double longer = std::max(a, b), shorter = std::min(a, b);
  if (shorter <= 0 || overlap <= 0) return longer;
  const double power = std::numbers::ln2 / std::log1p(overlap);
  return longer * std::pow(1 + std::pow(shorter / longer, power), 1 / power);
}

double beyond_l2(double bytes, const CardRates& card) {
  if (card.l2_bytes <= 0) return 1;
  return std::clamp((bytes / card.l2_bytes - card.l2_full) / (card.l2_none - card.l2_full), 0.0, 1.0);
}

double moving_ns(double bytes, double passes, double dram_fraction, const CardRates& card) {
  return std::max(dram_ns(bytes, passes, dram_fraction, card), 1e9 * bytes * passes / card.l2_bytes_per_s);
}

Estimate at_least_places(const Estimate& moved, double elements, double cycles, double floor_ns, const CardRates& card) {
  const double places_ns = floor_ns + 1e9 * elements * cycles / (card.multiprocessors * card.clock_hz);
  return places_ns > moved.ns ? Estimate{places_ns, Bound::compute} : moved;
}

Estimate time_by_bytes(const Operation& operation, const CardRates& card) {
  const BytesConstants& c = card.bytes[operation.kind];
  const double bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  const double ns = moving_ns(bytes, c.passes, c.dram_fraction * (operation.strided ? c.strided_fraction : 1), card);
  const double floor_ns = std::max<double>(1, static_cast<double>(operation.launches)) * c.floor_ns;
  const Estimate moved = {ns + floor_ns, ns > floor_ns ? Bound::memory : Bound::launch};
  if (!operation.indexed) return moved;
  const double elements = static_cast<double>(operation.bytes_written) / std::max(1, operation.element_bytes);
  return at_least_places(moved, elements, c.index_cycles, c.floor_ns, card);
}

Estimate time_by_rows(const Operation& operation, const RowConstants& rows, const CardRates& card) {
  const BytesConstants& c = card.bytes[operation.kind];
  const auto count = static_cast<double>(operation.rows), columns = static_cast<double>(operation.columns);
  // A row that is read again is still in L2 where L2 is much larger than the rows in work.
  const double gone = std::clamp(1 - card.l2_full * card.l2_bytes / (card.multiprocessors * card.at_work_bytes), 0.0, 1.0);
  const double bytes = static_cast<double>(operation.bytes_read + operation.bytes_written), passes = 1 + (rows.passes - 1) * gone;
  const double memory_ns = dram_ns(bytes, passes, c.dram_fraction, card);
  // With fewer threads less of their waiting overlaps, but each has a larger part of the multiprocessor.
  const double busy_ns = 1e9 * count * (rows.row_cycles + rows.element_cycles * columns) * std::sqrt(2048.0 / card.threads) /
                         (card.multiprocessors * card.clock_hz);
  const double one_row_ns = 1e9 * std::ceil(columns / 1024) * rows.step_cycles / card.clock_hz;
  const double ns = std::max({together_ns(memory_ns, busy_ns, rows.overlap), one_row_ns, 1e9 * bytes * passes / card.l2_bytes_per_s});
  const double floor_ns = std::max<double>(1, static_cast<double>(operation.launches)) * c.floor_ns;
  if (floor_ns > ns) return {ns + floor_ns, Bound::launch};
  return {ns + floor_ns, ns == one_row_ns ? Bound::tail : busy_ns > memory_ns ? Bound::compute : Bound::memory};
}

void read_row_constants(const Constants& constants, CardRates* card) {
  const auto rows = [&](OperationKind kind, Precision precision, const std::string& of) {
    const auto constant = [&](const char* name) { return constants.of_operation(kind, precision, of + name); };
    return RowConstants{constant("_row_cycles"), constant("_element_cycles"), constant("_step_cycles"), constant("_passes"),
                        constant("_overlap")};
  };
  for (size_t p = 0; p < kPrecisionCount; ++p) {
    const auto precision = static_cast<Precision>(p);
    card->normalization[precision] = {rows(OperationKind::normalization, precision, "softmax"),
                                      rows(OperationKind::normalization, precision, "long_softmax"),
                                      rows(OperationKind::normalization, precision, "layer"),
                                      rows(OperationKind::normalization, precision, "plain"),
                                      constants.of_operation(OperationKind::normalization, precision, "backward_passes"),
                                      constants.of_operation(OperationKind::normalization, precision, "batch_passes"),
                                      constants.of_operation(OperationKind::normalization, precision, "batch_backward_passes"),
                                      constants.of_operation(OperationKind::normalization, precision, "channel_bytes_per_cycle"),
                                      constants.of_operation(OperationKind::normalization, precision, "weight_sum_cycles")};
  }
  card->elementwise_rows = rows(OperationKind::elementwise, Precision::fp32, "block");
  const auto of_indexing = [&](const char* name) { return constants.of_operation(OperationKind::indexing, Precision::fp32, name); };
  card->indexing_element_cycles = of_indexing("element_cycles");
  card->sort_cycles = of_indexing("sort_cycles");
  card->sort_fraction = of_indexing("sort_fraction");
  card->summed_element_cycles = of_indexing("summed_element_cycles");
  for (const OperationKind kind : {OperationKind::copy, OperationKind::elementwise}) {
    card->bytes[kind].strided_fraction = constants.of_operation(kind, Precision::fp32, "strided_fraction");
    card->bytes[kind].index_cycles = constants.of_operation(kind, Precision::fp32, "index_cycles");
  }
  card->pageable_bytes_per_s = constants.of_operation(OperationKind::copy, Precision::fp32, "pageable_bytes_per_s");
}

}  // namespace gpucast

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

// A copy that goes across a tensor's rows reads one element of each line. Where L2 has lost the line before its next element is read, each
// element costs an access to device memory.
double far_ns(const Operation& operation, const BytesConstants& c, const CardRates& card) {
  constexpr double kL2LineBytes = 128;
  if (operation.far_elements <= 0) return 0;
  const double again = beyond_l2(static_cast<double>(operation.far_lines) * kL2LineBytes, card);
  return again * 1e9 * static_cast<double>(operation.far_elements) * static_cast<double>(kAccessBytes - operation.element_bytes) /
         (card.dram_bytes_per_s * c.dram_fraction);
}

// A kernel with few blocks waits for its loads: all its threads have too few of them on the way to fill the memory.
double waiting_ns(const Operation& operation, double launches, const BytesConstants& c, const CardRates& card) {
  if (operation.waited_loads <= 0) return 0;
  const double waves = std::max(1.0, static_cast<double>(operation.waiting_threads) / card.multiprocessors / card.threads);
  return 1e9 * launches * waves * (c.start_cycles + static_cast<double>(operation.waited_loads) * c.wait_cycles) / card.clock_hz;
}

// A kernel for images: its threads go through their elements, wait for each one's loads, and compute places with whole numbers.
double elements_ns(const Operation& operation, double launches, const BytesConstants& c, const CardRates& card) {
  const ElementWork& work = operation.element_work;
  if (work.elements <= 0 || operation.waiting_threads <= 0) return 0;
  const auto threads = static_cast<double>(operation.waiting_threads);
  const double waves = std::max(1.0, threads / card.multiprocessors / card.threads);
  const double shared = std::max(1.0, std::ceil(static_cast<double>(work.elements) / launches / threads));
  const double of_thread = work.of_thread > 0 ? static_cast<double>(work.of_thread) : shared;
  const double element_cycles = work.waited_loads * c.wait_cycles + work.near_loads * c.near_load_cycles +
                                work.joined_loads * c.joined_load_cycles + work.atomics * c.atomic_cycles;
  const double thread_cycles = waves * (c.start_cycles + of_thread * element_cycles);
  const double division_cycles = threads * work.divisions * c.division_cycles / card.multiprocessors;
  const double atomic_cycles = work.atomic_sectors * card.counted.atomic_cycles / card.multiprocessors;
  return 1e9 * std::max(launches * (thread_cycles + division_cycles), atomic_cycles) / card.clock_hz;
}

// aten/src/ATen/native/cuda/Reduce.cuh, global_reduce: where several blocks compute a sum, the last of them adds their parts.
double merging_ns(const Operation& operation, const BytesConstants& c, const CardRates& card) {
  if (operation.merged_loads <= 0) return 0;
  return 1e9 * (c.merge_cycles + static_cast<double>(operation.merged_loads) * c.merge_load_cycles) / card.clock_hz;
}

}  // namespace

double together_ns(double a, double b, double overlap) {
  const double longer = std::max(a, b), shorter = std::min(a, b);
  if (shorter <= 0 || overlap <= 0) return longer;
  const double power = std::numbers::ln2 / std::log1p(overlap);
  return longer * std::pow(1 + std::pow(shorter / longer, power), 1 / power);
}

double beyond_l2(double bytes, const CardRates& card, double full, double none) {
  if (card.l2_bytes <= 0) return 1;
  const double first = card.l2_full * full, last = card.l2_none * none;
  return std::clamp((bytes / card.l2_bytes - first) / std::max(1e-9, last - first), 0.0, 1.0);
}

double moving_ns(double bytes, double passes, double dram_fraction, const CardRates& card) {
  return std::max(dram_ns(bytes, passes, dram_fraction, card), 1e9 * bytes * passes / card.l2_bytes_per_s);
}

Estimate at_least_places(const Estimate& moved, double elements, double cycles, double floor_ns, const CardRates& card) {
  const double places_ns = floor_ns + 1e9 * elements * cycles / (card.multiprocessors * card.clock_hz);
  return places_ns > moved.ns ? Estimate{places_ns, Bound::compute} : moved;
}

Estimate at_least_blocks(const Estimate& moved, int64_t blocks, double floor_ns, const CardRates& card) {
  const double blocks_ns = floor_ns + 1e9 * static_cast<double>(blocks) * card.counted.block_cycles / card.clock_hz;
  return blocks_ns > moved.ns ? Estimate{blocks_ns, Bound::launch} : moved;
}

bool is_fill(const Operation& operation) {
  const bool writes = operation.bytes_written > 0 || operation.row_blocks > 0;
  return operation.kind == OperationKind::elementwise && operation.bytes_read == 0 && operation.draws == 0 && writes;
}

Estimate time_by_bytes(const Operation& operation, const CardRates& card) {
  const BytesConstants& c = card.bytes[operation.kind];
  const bool fill = is_fill(operation);
  const double bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  const double fraction = c.dram_fraction * (operation.strided ? c.strided_fraction : 1) * (fill ? c.fill_fraction : 1);
  const double moved_ns = moving_ns(bytes, c.passes, fraction, card) + far_ns(operation, c, card);
  const double launches = std::max<double>(1, static_cast<double>(operation.launches));
  const double waits_ns = waiting_ns(operation, launches, c, card) + elements_ns(operation, launches, c, card);
  const double ns = together_ns(moved_ns, waits_ns, c.wait_overlap) + merging_ns(operation, c, card);
  const double floor_ns = launches * (fill ? c.fill_floor_ns : c.floor_ns);
  Estimate out = {ns + floor_ns, ns <= floor_ns ? Bound::launch : ns > 2 * moved_ns ? Bound::tail : Bound::memory};
  const double written = static_cast<double>(operation.bytes_written), element_bytes = std::max(1, operation.element_bytes);
  if (operation.indexed) {
    const double at_once = operation.moved_at_once > 0 ? static_cast<double>(operation.moved_at_once) : element_bytes;
    const double line_cycles = c.line_cycles * static_cast<double>(operation.warp_lines) / 32;
    out = at_least_places(out, written / at_once, c.index_cycles + line_cycles, c.floor_ns, card);
    if (operation.kind == OperationKind::copy)
      out.ns = floor_ns + together_ns(out.ns - floor_ns, 1e9 * c.start_cycles / card.clock_hz, c.wait_overlap);
  }
  if (operation.cast_tensors > 0) {
    const double largest = operation.kind == OperationKind::copy ? std::max(static_cast<double>(operation.bytes_read), written) : written;
    out = at_least_places(out, largest / element_bytes * static_cast<double>(operation.cast_tensors), c.cast_cycles, c.floor_ns, card);
  }
  return out;
}

Estimate time_by_rows(const Operation& operation, const RowConstants& rows, const CardRates& card) {
  const BytesConstants& c = card.bytes[operation.kind];
  const auto count = static_cast<double>(operation.rows), columns = static_cast<double>(operation.columns);
  // A row that is read again is still in L2 where L2 is much larger than the rows in work.
  double at_work_bytes = card.at_work_bytes;
  if (rows.rows_at_work > 0 && count > 0)
    at_work_bytes = std::min(at_work_bytes, rows.rows_at_work * static_cast<double>(operation.bytes_read) / count);
  const double gone = std::clamp(1 - card.l2_full * card.l2_bytes / (card.multiprocessors * std::max(1.0, at_work_bytes)), 0.0, 1.0);
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
    RowConstants out;
    out.row_cycles = constant("_row_cycles");
    out.element_cycles = constant("_element_cycles");
    out.step_cycles = constant("_step_cycles");
    out.passes = constant("_passes");
    out.overlap = constant("_overlap");
    return out;
  };
  for (size_t p = 0; p < kPrecisionCount; ++p) {
    const auto precision = static_cast<Precision>(p);
    const auto of = [&](const char* name) { return constants.of_operation(OperationKind::normalization, precision, name); };
    NormalizationConstants& c = card->normalization[precision];
    c.short_softmax = rows(OperationKind::normalization, precision, "softmax");
    c.long_softmax = rows(OperationKind::normalization, precision, "long_softmax");
    c.layer = rows(OperationKind::normalization, precision, "layer");
    c.plain = rows(OperationKind::normalization, precision, "plain");
    c.layer.rows_at_work = c.plain.rows_at_work = of("layer_rows_at_work");
    c.backward_passes = of("backward_passes");
    c.batch_passes = of("batch_passes");
    c.batch_backward_passes = of("batch_backward_passes");
    c.channel_bytes_per_cycle = of("channel_bytes_per_cycle");
    c.channel_backward_bytes_per_cycle = of("channel_backward_bytes_per_cycle");
    c.channel_cycles = of("channel_cycles");
    c.kept_elements = of("kept_elements");
    c.kept_backward_elements = of("kept_backward_elements");
    c.statistics_cycles = of("statistics_cycles");
    c.statistics_backward_cycles = of("statistics_backward_cycles");
    c.statistics_passes = of("statistics_passes");
    c.layer_backward_rows = of("layer_backward_rows");
    c.weight_sum_cycles = of("weight_sum_cycles");
    c.weight_row_cycles = of("weight_row_cycles");
    c.reread_full = of("reread_full");
    c.reread_none = of("reread_none");
  }
  card->elementwise_rows = rows(OperationKind::elementwise, Precision::fp32, "block");
  const auto of_indexing = [&](const char* name) { return constants.of_operation(OperationKind::indexing, Precision::fp32, name); };
  card->indexing_element_cycles = of_indexing("element_cycles");
  card->indexing_step_cycles = of_indexing("step_cycles");
  card->sort_pass_cycles = of_indexing("sort_pass_cycles");
  card->sort_row_cycles = of_indexing("sort_row_cycles");
  card->sort_cycles = of_indexing("sort_cycles");
  card->sort_fraction = of_indexing("sort_fraction");
  card->summed_element_cycles = of_indexing("summed_element_cycles");
  for (const OperationKind kind : {OperationKind::copy, OperationKind::elementwise}) {
    card->bytes[kind].strided_fraction = constants.of_operation(kind, Precision::fp32, "strided_fraction");
    card->bytes[kind].index_cycles = constants.of_operation(kind, Precision::fp32, "index_cycles");
    card->bytes[kind].cast_cycles = constants.of_operation(kind, Precision::fp32, "cast_cycles");
  }
  for (const OperationKind kind : {OperationKind::reduction, OperationKind::optimizer, OperationKind::elementwise}) {
    card->bytes[kind].wait_cycles = constants.of_operation(kind, Precision::fp32, "wait_cycles");
    card->bytes[kind].wait_overlap = constants.of_operation(kind, Precision::fp32, "wait_overlap");
  }
  const auto of_reduction = [&](const char* name) { return constants.of_operation(OperationKind::reduction, Precision::fp32, name); };
  BytesConstants& reduction = card->bytes[OperationKind::reduction];
  reduction.start_cycles = of_reduction("start_cycles");
  reduction.merge_cycles = of_reduction("merge_cycles");
  reduction.merge_load_cycles = of_reduction("merge_load_cycles");
  card->bytes[OperationKind::copy].line_cycles = constants.of_operation(OperationKind::copy, Precision::fp32, "line_cycles");
  card->bytes[OperationKind::copy].wait_overlap = constants.of_operation(OperationKind::copy, Precision::fp32, "wait_overlap");
  card->bytes[OperationKind::copy].start_cycles = constants.of_operation(OperationKind::copy, Precision::fp32, "start_cycles");
  const auto of_elements = [&](const char* name) { return constants.of_operation(OperationKind::elementwise, Precision::fp32, name); };
  BytesConstants& elementwise = card->bytes[OperationKind::elementwise];
  elementwise.fill_fraction = of_elements("fill_fraction");
  elementwise.fill_floor_ns = of_elements("fill_floor_ns");
  card->draw_cycles = of_elements("draw_cycles");
  elementwise.start_cycles = of_elements("start_cycles");
  elementwise.near_load_cycles = of_elements("near_load_cycles");
  elementwise.joined_load_cycles = of_elements("joined_load_cycles");
  elementwise.atomic_cycles = of_elements("atomic_cycles");
  elementwise.division_cycles = of_elements("division_cycles");
  card->pageable_bytes_per_s = constants.of_operation(OperationKind::copy, Precision::fp32, "pageable_bytes_per_s");
}

}  // namespace gpucast

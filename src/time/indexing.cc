#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"

namespace gpucast {

namespace {

constexpr int64_t kSortedByABlock = 4096;  // the longest row, aten/src/ATen/native/cuda/Sort.cpp
constexpr int64_t kFewRows = 128;          // fewer rows are sorted as one, by value and then by row: SortStable.cu
constexpr int64_t kMostColumns = 1000000;  // longer rows are sorted one by one

// CUB's radix sorts. A pass reads and writes keys and values; it takes 8 bits where a row has many blocks, 6 bits where it has one, which
// then reads its keys twice.
Estimate sort_time(const Operation& operation, const CardRates& card) {
  const BytesConstants& c = card.bytes[OperationKind::indexing];
  const auto bits = static_cast<double>(operation.sort_bits), rows = static_cast<double>(operation.rows);
  const double elements = rows * static_cast<double>(operation.columns);
  if (operation.columns <= kSortedByABlock) {
    constexpr double kSteps = 4;  // of a pass: ranks, two sums, and the exchange
    const Estimate moved = at_least_places(time_by_bytes(operation, card), elements * bits / 4, card.sort_cycles, c.floor_ns, card);
    const double pass_cycles = kSteps * card.indexing_step_cycles + static_cast<double>(operation.columns) * card.sort_row_cycles;
    const double row_ns = c.floor_ns + 1e9 * bits / 4 * pass_cycles / card.clock_hz;
    return row_ns > moved.ns ? Estimate{row_ns, Bound::tail} : moved;
  }
  const bool by_block = operation.rows >= kFewRows && operation.columns < kMostColumns;
  const bool by_row = !by_block && operation.columns < kMostColumns;
  const double passes = by_block ? std::ceil(bits / 6) : std::ceil(bits / 8) + (by_row ? std::ceil(std::log2(rows) / 8) : 0);
  const double bytes = static_cast<double>(operation.bytes_read + operation.bytes_written) + (by_block ? elements * bits / 8 : 0);
  const double ns = moving_ns(bytes, passes, c.dram_fraction * (by_block ? card.sort_fraction : 1), card);
  const double floor_ns = std::max(passes, static_cast<double>(operation.launches)) * c.floor_ns;
  return {ns + floor_ns, ns > floor_ns ? Bound::memory : Bound::launch};
}

// Of a multiprocessor's threads, those that blocks of one row fill: a block has a thread for each element, at most 1,024.
double filled_threads(const Operation& operation, const CardRates& card) {
  const double block = std::min(1024.0, std::ceil(static_cast<double>(std::max<int64_t>(1, operation.columns)) / 32) * 32);
  return std::max(1.0, std::floor(card.threads / block)) * block / card.threads;
}

// A kernel whose threads wait for their loads and for one another, wave after wave.
Estimate waiting_time(const Operation& operation, const CardRates& card) {
  const Estimate moved = time_by_bytes(operation, card);
  const double waves = std::max(1.0, static_cast<double>(operation.waiting_threads) / card.multiprocessors / card.threads);
  const double one_ns = static_cast<double>(operation.waited_loads) * card.counted.load_ns +
                        1e9 * static_cast<double>(operation.waited_steps) * card.indexing_step_cycles / card.clock_hz;
  const double floor_ns = card.bytes[OperationKind::indexing].floor_ns, ns = floor_ns + waves * one_ns;
  return at_least_places(ns > moved.ns ? Estimate{ns, Bound::tail} : moved, static_cast<double>(operation.sorted_elements),
                         card.sort_pass_cycles, floor_ns, card);
}

}  // namespace

// Each element's address is computed with integer divisions, which need more time than moving a few bytes.
Estimate indexing_time(const Operation& operation, const CardRates& card) {
  if (operation.sort_bits > 0) return sort_time(operation, card);
  if (operation.waiting_threads > 0) return waiting_time(operation, card);
  if (operation.summed_rows > 0) {
    const double summed = static_cast<double>(operation.summed_rows) * static_cast<double>(operation.columns);
    return at_least_places(time_by_bytes(operation, card), summed / filled_threads(operation, card), card.summed_element_cycles,
                           card.bytes[OperationKind::indexing].floor_ns, card);
  }
  const double at_once = static_cast<double>(operation.moved_at_once > 0 ? operation.moved_at_once : std::max(1, operation.element_bytes));
  const double elements = static_cast<double>(std::min(operation.bytes_read, operation.bytes_written)) / at_once;
  const double floor_ns = card.bytes[OperationKind::indexing].floor_ns;
  const Estimate estimate =
      at_least_blocks(at_least_places(time_by_bytes(operation, card), elements, card.indexing_element_cycles, floor_ns, card),
                      operation.row_blocks, floor_ns, card);
  if (operation.one_block_threads <= 0) return estimate;
  // A thread loads a row's index, then the element, and only then goes on to its next row. The backward stores the element.
  constexpr double kStore = 0.5;  // of a load
  const double rounds = std::ceil(static_cast<double>(operation.rows) / static_cast<double>(operation.one_block_threads));
  const double rows_ns = floor_ns + rounds * (1 + (operation.pass == Pass::backward ? kStore : 1)) * card.counted.load_ns;
  return rows_ns > estimate.ns ? Estimate{rows_ns, Bound::tail} : estimate;
}

}  // namespace gpucast

#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"

namespace gpucast {

// Each element's address is computed with integer divisions, which need more time than moving a few bytes.
Estimate indexing_time(const Operation& operation, const CardRates& card) {
  const double elements =
      static_cast<double>(std::min(operation.bytes_read, operation.bytes_written)) / std::max(1, operation.element_bytes);
  const Estimate estimate = at_least_places(time_by_bytes(operation, card), elements, card.indexing_element_cycles,
                                            card.bytes[OperationKind::indexing].floor_ns, card);
  if (operation.one_block_threads <= 0) return estimate;
  // A thread loads a row's index, then the element, and only then goes on to its next row.
  const double rounds = std::ceil(static_cast<double>(operation.rows) / static_cast<double>(operation.one_block_threads));
  const double rows_ns = card.bytes[OperationKind::indexing].floor_ns + 1e9 * rounds * 2 * kLoadCycles / card.clock_hz;
  return rows_ns > estimate.ns ? Estimate{rows_ns, Bound::tail} : estimate;
}

}  // namespace gpucast

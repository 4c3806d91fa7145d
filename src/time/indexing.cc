#include <algorithm>

#include "src/time/kinds.h"

namespace gpucast {

// Each element's place is computed: whole numbers are divided, which takes longer than to move a few bytes.
Estimate indexing_time(const Operation& operation, const CardRates& card) {
  Estimate estimate = time_by_bytes(operation, card);
  const double elements =
      static_cast<double>(std::min(operation.bytes_read, operation.bytes_written)) / std::max(1, operation.element_bytes);
  const double floor_ns = card.bytes[OperationKind::indexing].floor_ns;
  const double places_ns = floor_ns + 1e9 * elements * card.indexing_element_cycles / (card.multiprocessors * card.clock_hz);
  if (places_ns > estimate.ns) estimate = {places_ns, Bound::compute};
  return estimate;
}

}  // namespace gpucast

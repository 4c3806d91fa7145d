#include <algorithm>

#include "src/time/kinds.h"

namespace gpucast {

// Each element's address is computed with integer divisions, which need more time than moving a few bytes.
Estimate indexing_time(const Operation& operation, const CardRates& card) {
  const double elements =
      static_cast<double>(std::min(operation.bytes_read, operation.bytes_written)) / std::max(1, operation.element_bytes);
  return at_least_places(time_by_bytes(operation, card), elements, card.indexing_element_cycles,
                         card.bytes[OperationKind::indexing].floor_ns, card);
}

}  // namespace gpucast

#include <algorithm>

#include "src/time/kinds.h"

namespace gpucast {

// cuDNN computes the part that does not depend on the step before as large products, and the rest step by step (`rows` steps). Each step
// reads the weights again, from L2 if they fit.
Estimate recurrent_time(const Operation& operation, const CardRates& card) {
  const BytesConstants& c = card.bytes[OperationKind::recurrent];
  const double steps = std::max<double>(1, static_cast<double>(operation.rows));
  const double compute_ns = 1e9 * operation.flops / (card.recurrent_efficiency * card.sustained_flop_per_s[operation.precision]);
  const Estimate memory = time_by_bytes(operation, card);
  const double steps_ns = steps * c.floor_ns;
  return {std::max({compute_ns, memory.ns, steps_ns}) + c.floor_ns, steps_ns > std::max(compute_ns, memory.ns) ? Bound::launch
                                                                    : compute_ns > memory.ns                   ? Bound::compute
                                                                                                               : Bound::memory};
}

}  // namespace gpucast

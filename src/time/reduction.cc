#include "src/time/kinds.h"

namespace gpucast {

Estimate reduction_time(const Operation& operation, const CardRates& card) { return time_by_bytes(operation, card); }

}  // namespace gpucast

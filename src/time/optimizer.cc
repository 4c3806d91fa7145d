#include "src/time/kinds.h"

namespace gpucast {

Estimate optimizer_time(const Operation& operation, const CardRates& card) { return time_by_bytes(operation, card); }

}  // namespace gpucast

#include "src/occupancy/counters.h"

#include <algorithm>
#include <cmath>

namespace gpucast {

CounterShares counter_shares(const Occupancy& occupancy, double warps, double duration_ns, const CounterConstants& constants) {
  if (!(duration_ns > 0)) return {};
  // The sum of a multiprocessor's blocks varies with the root of their number, and each takes 1/waves of the time.
  const double uneven_ns = constants.uneven * duration_ns / std::sqrt(static_cast<double>(std::max<int64_t>(1, occupancy.waves)));
  const double empty = std::min((constants.empty_ns + uneven_ns) / duration_ns, constants.most_empty);
  return {occupancy.achieved * warps * (1 - empty), occupancy.sm_active * (1 - empty)};
}

}  // namespace gpucast

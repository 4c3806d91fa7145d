#include "src/occupancy/counters.h"

#include <algorithm>
#include <cmath>

namespace gpucast {

namespace {

// While the grid runs, without the time in which no block does.
CounterShares shares_of_waves(const Occupancy& occupancy, double busy_warps) {
  const int resident = occupancy.resident.blocks;
  if (occupancy.waves <= 1 || resident <= 0) return {occupancy.achieved, occupancy.sm_active};
  if (occupancy.tail >= 1) return {occupancy.theoretical, 1};
  const auto waves = static_cast<double>(occupancy.waves - 1);  // full ones
  // The last wave's blocks of one multiprocessor, and the time that they need, as a share of a full wave's.
  const double blocks = occupancy.tail * resident;
  const double time = std::max(std::ceil(blocks) / resident, std::min(1.0, busy_warps / std::max(1, occupancy.warps)));
  return {occupancy.theoretical * (waves + time * occupancy.tail) / (waves + time),
          (waves + time * std::min(1.0, blocks)) / (waves + time)};
}

}  // namespace

CounterShares counter_shares(const Occupancy& occupancy, double warps, double duration_ns, const CounterConstants& constants) {
  if (!(duration_ns > 0)) return {};
  // The sum of a multiprocessor's blocks varies with the root of their number, and each takes 1/waves of the time.
  const double uneven_ns = constants.uneven * duration_ns / std::sqrt(static_cast<double>(std::max<int64_t>(1, occupancy.waves)));
  const double empty = std::min((constants.empty_ns + uneven_ns) / duration_ns, constants.most_empty);
  const CounterShares running = shares_of_waves(occupancy, constants.busy_warps);
  return {running.occupancy * warps * (1 - empty), running.sm_active * (1 - empty)};
}

}  // namespace gpucast

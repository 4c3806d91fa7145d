// A training loop and its loader's workers, batch by batch.
#pragma once

#include <cstdint>
#include <vector>

namespace gpucast {

// The mean time from one batch to the next of a loop that works `work_ns` for each. Workers take turns, each makes a batch in
// workers * period_ns, times one of `variation` (mean 1; empty: always 1); the loop takes batches in their order, and for each it takes
// another is asked for: workers * prefetch are under way or wait. The choice of variations is the same each time.
double mean_step_ns(double work_ns, int64_t workers, int64_t prefetch, double period_ns, const std::vector<double>& variation);

}  // namespace gpucast

// A training loop and its loader's workers, batch by batch.
#pragma once

#include <cstdint>
#include <vector>

namespace gpucast {

// The mean time from one batch to the next in a loop that works `work_ns` for each batch. Workers take turns. Each makes a batch in
// workers * period_ns, multiplied by one of `variation` (mean 1; empty: always 1). The loop gets batches in their order, and requests
// another one for each batch that it gets, so workers * prefetch batches are in work or ready. The choice of variations is the same in
// every call.
double mean_step_ns(double work_ns, int64_t workers, int64_t prefetch, double period_ns, const std::vector<double>& variation);

}  // namespace gpucast

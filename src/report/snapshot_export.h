// A history as a memory snapshot of PyTorch, for memory_viz and torch.cuda._memory_viz (docs/reference/snapshots.md).
#pragma once

#include <ostream>

#include "src/predict/analysis.h"

namespace gpucast {

// A pickle of protocol 4 with plain data only. The viewers start from the segments at the end and go backwards. Those segments come from
// the history or, if the input was a snapshot, from the snapshot. Throws Error if `out` cannot be written.
void write_snapshot(const Analysis& analysis, std::ostream& out);

}  // namespace gpucast

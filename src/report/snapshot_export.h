// A history as a memory snapshot of PyTorch, for memory_viz and torch.cuda._memory_viz (docs/reference/snapshots.md).
#pragma once

#include <ostream>

#include "src/predict/analysis.h"

namespace gpucast {

// A pickle of protocol 4, plain data only. The viewers go backwards from the segments at the end, so those come from the
// history itself, or from the snapshot when `trace` was one. Throws Error when `out` cannot be written.
void write_snapshot(const Analysis& analysis, std::ostream& out);

}  // namespace gpucast

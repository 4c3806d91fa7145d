// The allocator's segments when the history ends, as a memory snapshot of PyTorch lists them.
#pragma once

#include <vector>

#include "src/predict/facts.h"

namespace gpucast {

// With all their blocks: a snapshot's own segments, or the segments at the end of the history.
std::vector<SnapshotSegment> segments_at_end(const Facts& facts);

}  // namespace gpucast

// What the allocator held before the first event of a history that begins in the middle: because recording began late, or
// because its ring buffer (max_entries) was full and the oldest events were dropped.
//
// The state at the end is known. The events are undone from the last to the first: an alloc's block goes, a free's block comes
// back, segments likewise. A history that is complete leaves nothing.
//
//   at the end                 [ used A ][ free              ]
//   undo free_completed B      [ used A ][ used B 5 MiB ][   ]
//   undo alloc A               [ free   ][ used B 5 MiB ][   ]   the state before the first event
//
// A free says what was asked for, not how large the block was: a rest of up to 1 MiB may have stayed with it. Where the gap behind
// a block leaves that open, the first allocation in the gap tells, for it takes the start of the free block.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/trace.h"
#include "src/base/alloc_conf.h"

namespace gpucast {

struct StartState {
  std::vector<SnapshotSegment> segments;  // by address; their blocks tile them. Empty: the history is complete
  int64_t allocated_bytes = 0;            // of blocks in use
  int64_t reserved_bytes = 0;
  int64_t unclear = 0;  // events that do not go together with the end: then the state is a guess
};

// Adds contradictions to `problems`, and goes on. O(events * log(blocks)).
StartState reconstruct_start(const std::vector<AllocatorEvent>& events, const std::vector<SnapshotSegment>& end_segments,
                             const AllocConf& conf, Problems* problems);

}  // namespace gpucast

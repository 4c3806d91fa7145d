// The allocator's state before the first event of a history that begins in the middle: because recording began late, or because its
// ring buffer (max_entries) was full and the oldest events were dropped.
//
// The state at the end is known. The events are undone from the last to the first: an alloc removes its block, a free restores its
// block, and the same for segments. If the history is complete, nothing remains.
//
//   at the end                 [ used A ][ free              ]
//   undo free_completed B      [ used A ][ used B 5 MiB ][   ]
//   undo alloc A               [ free   ][ used B 5 MiB ][   ]   the state before the first event
//
// A free records the requested size, not the block's size: a rest of up to 1 MiB may have stayed with the block. If the gap after the
// block does not decide that, the first allocation in the gap does, because it takes the start of the free block.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/trace.h"
#include "src/base/alloc_conf.h"

namespace gpucast {

struct StartState {
  std::vector<SnapshotSegment> segments;  // by address, covered by their blocks. Empty: the history is complete
  int64_t allocated_bytes = 0;            // of blocks in use
  int64_t reserved_bytes = 0;
  int64_t unclear = 0;  // events that contradict the end state: then this state is a guess
};

// Adds contradictions to `problems`, and goes on. O(events * log(blocks)).
StartState reconstruct_start(const std::vector<AllocatorEvent>& events, const std::vector<SnapshotSegment>& end_segments,
                             const AllocConf& conf, Problems* problems);

}  // namespace gpucast

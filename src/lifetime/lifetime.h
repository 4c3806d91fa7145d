// Allocator events -> memory blocks with birth, death and size; allocated and reserved bytes after every event.
//
// PyTorch's `allocated` counts whole blocks, and a block may be larger than the request: requests are rounded, and the rest of a
// free block is only split off when it is large enough. The history records requests, not blocks, so this follows the allocator's
// state. No search is needed: the addresses show which free block was used.
//
//   segment_alloc 0x0, 20 MiB      [ free 20 MiB                        ]   reserved 20 MiB
//   alloc 0x0, 5 MiB               [ used 5 MiB ][ free 15 MiB          ]   allocated 5 MiB
//   alloc 0x500000, 14.5 MiB       [ used 5 MiB ][ used 15 MiB          ]   allocated 20 MiB: a rest of 0.5 MiB is not split off
//   free_requested 0x0             [ freeing    ][ used 15 MiB          ]   allocated 15 MiB
//   free_completed 0x0             [ free 5 MiB ][ used 15 MiB          ]   and merged with free neighbours
//
// Positions: position p is after event p-1 and before event p; position events.size() is the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/trace.h"
#include "src/base/alloc_conf.h"
#include "src/lifetime/start_state.h"

namespace gpucast {

using BlockId = Id<struct BlockTag>;

struct Block {
  uint64_t address = 0;
  int64_t size_bytes = 0;  // the bytes that count as allocated
  int64_t requested_bytes = 0;
  uint64_t stream = 0;
  StackId stack;
  uint32_t alloc_event = 0;      // index of its alloc event; 0 when it existed before
  uint32_t free_event = kNever;  // index of its free_requested event
  bool before_start = false;     // the history begins in the middle, and the block was already in use
  static constexpr uint32_t kNever = UINT32_MAX;

  bool alive_at(uint32_t position) const {
    return (before_start || alloc_event < position) && (free_event == kNever || free_event >= position);
  }
};

struct Peak {
  int64_t bytes = 0;
  uint32_t event = 0;         // the first event that reached it; meaningless when bytes is 0
  bool before_start = false;  // it was reached before the first event, and never again
  uint32_t position() const { return before_start ? 0 : event + 1; }
};

struct Oom {
  uint32_t event = 0;
  int64_t requested_bytes = 0, free_bytes = 0;
};

struct Lifetimes {
  std::vector<Block> blocks;       // in order of birth
  std::vector<int64_t> allocated;  // bytes after event i
  std::vector<int64_t> reserved;
  std::vector<RecordedSegment> segments;  // at the end, by address; one for each mapped range of an expandable segment
  std::vector<Oom> ooms;
  Peak peak_allocated, peak_reserved;
  int64_t start_allocated_bytes = 0, start_reserved_bytes = 0;  // before the first event

  int64_t allocated_at(uint32_t position) const { return position == 0 ? start_allocated_bytes : allocated[position - 1]; }
  int64_t reserved_at(uint32_t position) const { return position == 0 ? start_reserved_bytes : reserved[position - 1]; }
};

// Adds contradictions to `problems`, and goes on. `start`: the state before the first event; its blocks come first.
// O(events * log(blocks)).
Lifetimes follow_blocks(const std::vector<AllocatorEvent>& events, const AllocConf& conf, Problems* problems, const StartState& start = {});

// How the result compares with PyTorch's own counters and segments at the end of the capture, or with a snapshot's segments
// and blocks.
struct Comparison {
  bool possible = false;                 // the capture has counters to compare with
  bool matches_recorded = false;         // everything that could be compared is equal
  std::vector<std::string> differences;  // "allocated at the end: 1 byte here, 2 in PyTorch's counters"
};
Comparison compare_with_recorded(const Trace& trace, const Lifetimes& lifetimes);

}  // namespace gpucast

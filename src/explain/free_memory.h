// What is reserved and holds no block, at one moment of a history.
#pragma once

#include <cstdint>
#include <vector>

#include "src/lifetime/lifetime.h"
#include "src/predict/analysis.h"

namespace gpucast {

struct FreePiece {
  uint64_t address = 0;
  int64_t bytes = 0;
};

// A segment (of expandable segments: a range that is mapped without a gap) with what it holds.
struct SegmentFilling {
  uint64_t address = 0;
  int64_t bytes = 0;
  std::vector<uint32_t> blocks;  // indices of Lifetimes::blocks, by address
  std::vector<FreePiece> free;   // blocks and free pieces tile the segment
};

// At `position` (see lifetime.h), by address. The bytes of all segments are what is reserved there, those of the free pieces what of it
// is not allocated. O(events).
std::vector<SegmentFilling> segments_at(const Analysis& analysis, uint32_t position);

// The moment to look at: where the run ended out of memory; else, of those when reserved is at its peak, the one with most allocated. What
// is free then is what the job never needed at once.
uint32_t fullest_position(const Analysis& analysis);

}  // namespace gpucast

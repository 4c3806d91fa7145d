// Reserved memory without a block, at one moment of a history.
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

// A segment (for expandable segments: a range that is mapped without a gap) with its content.
struct SegmentFilling {
  uint64_t address = 0;
  int64_t bytes = 0;
  std::vector<uint32_t> blocks;  // indices of Lifetimes::blocks, by address
  std::vector<FreePiece> free;   // blocks and free pieces together cover the segment
};

// The segments at `position` (see lifetime.h), by address. The bytes of all segments add up to reserved, and the bytes of all free pieces
// to reserved minus allocated. O(events).
std::vector<SegmentFilling> segments_at(const Analysis& analysis, uint32_t position);

// The moment to examine: where the run ended out of memory; otherwise, among the moments when reserved is at its peak, the one with most
// allocated. Memory that is free then was never needed together with the rest.
uint32_t fullest_position(const Analysis& analysis);

}  // namespace gpucast

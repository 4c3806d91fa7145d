// When each piece of memory was there: segments and blocks as intervals of positions (see lifetime.h), so that a report
// can show the allocator's memory at any moment without following its events.
#pragma once

#include <cstdint>
#include <vector>

#include "src/predict/facts.h"

namespace gpucast {

// A segment, or a mapped range of an expandable one. There at position p when birth <= p < death.
struct SegmentLife {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  uint64_t stream = 0;
  bool expandable = false;
  uint32_t birth = 0, death = 0;
};

// In order of birth. At every position the sizes add up to lifetimes.reserved_at(), unless memory is mapped where blocks in
// use are mapped already: then what lies there is a guess in both. O(events * log(segments)).
std::vector<SegmentLife> segment_lives(const Facts& facts);

// Of each block the position from which its memory could be used again: behind its free_completed, which may come later than
// its free_requested when another stream uses the block. Block::kNever: not in this history.
std::vector<uint32_t> released_at(const Facts& facts);

}  // namespace gpucast

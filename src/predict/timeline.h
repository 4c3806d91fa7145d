// The times at which segments and blocks existed, as intervals of positions (see lifetime.h). With them a report can show the allocator's
// memory at any moment without following its events.
#pragma once

#include <cstdint>
#include <vector>

#include "src/predict/facts.h"

namespace gpucast {

// A segment, or a mapped range of an expandable one. It exists at position p if birth <= p < death.
struct SegmentLife {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  uint64_t stream = 0;
  bool expandable = false;
  uint32_t birth = 0, death = 0;
};

// In order of birth. At every position the sizes add up to lifetimes.reserved_at(), unless memory is mapped at addresses that blocks in use
// have already: then both are estimates. O(events * log(segments)).
std::vector<SegmentLife> segment_lives(const Facts& facts);

// For each block, the first position at which its memory can be used again. It follows the block's free_completed, which may be later than
// its free_requested if another stream uses the block. Block::kNever: not in this history.
std::vector<uint32_t> released_at(const Facts& facts);

}  // namespace gpucast

// What one request of a warp touches.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "src/kernels/byte_ranges.h"

namespace gpucast::ptx {

inline constexpr int kLanes = 32;
using LaneMask = uint32_t;
using LaneValues = std::array<uint64_t, kLanes>;

// An instruction's last request. Where the next one touches the same places, moved as a whole, nothing is counted anew.
struct Footprint {
  LaneValues addresses = {};
  LaneMask mask = 0;
  int count = 0;  // sectors or wavefronts
  std::vector<ByteRange> ranges;
  ByteRange extent;             // of the last request
  std::vector<ByteRange> open;  // what was touched and is not in the log yet: the next request often continues it
  void close(std::vector<ByteRange>* log);
};

// Sectors of 32 bytes that the lanes of `mask` touch, each once. Their bytes go to last->open, and what was there to `log` if it does not
// touch them.
int count_sectors(const LaneValues& addresses, LaneMask mask, uint32_t bytes, Footprint* last, std::vector<ByteRange>* log);
// Passes through the 32 banks of 4 bytes: half a warp at a time for accesses of 8 bytes, a quarter for 16 bytes.
int count_wavefronts(const LaneValues& addresses, LaneMask mask, uint32_t bytes, Footprint* last);
// Matrices of 8 rows of 16 bytes; each lane states one row.
int count_matrix_wavefronts(const LaneValues& addresses, LaneMask mask, uint32_t matrices, Footprint* last);

}  // namespace gpucast::ptx

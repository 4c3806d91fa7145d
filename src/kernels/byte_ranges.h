// Ranges of bytes that were read or written, to count each byte once.
#pragma once

#include <cstdint>
#include <vector>

namespace gpucast::ptx {

struct ByteRange {
  uint64_t begin = 0, length = 0;
  int64_t stride = 0;  // between repetitions
  uint64_t count = 1;  // repetitions
};

// Sorted, without overlaps.
struct ByteSet {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // begin, end
  double more = 0;                                    // bytes of repetitions that are too many to list
  double bytes() const;
  bool operator==(const ByteSet&) const = default;
};
ByteSet union_of(const std::vector<const std::vector<ByteRange>*>& logs);
ByteSet union_of_sets(const std::vector<const ByteSet*>& sets);

}  // namespace gpucast::ptx

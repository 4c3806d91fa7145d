// Ranges of bytes that were read or written, to count each byte once.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace gpucast::ptx {

struct ByteRange {
  uint64_t begin = 0, end = 0;
  friend auto operator<=>(const ByteRange&, const ByteRange&) = default;
};

// Sorted, without overlaps.
struct ByteSet {
  std::vector<ByteRange> ranges;
  double bytes() const;
};
ByteSet union_of(std::vector<ByteRange> ranges);
ByteSet union_of(const std::vector<ByteSet>& sets);

// A few ranges around what was added: where there would be more, those with the least between them become one.
class RoughByteSet {
 public:
  void clear() { ranges_.clear(); }
  void add(const ByteRange& range);
  bool touches(const ByteRange& range) const;

 private:
  std::vector<ByteRange> ranges_;  // sorted, apart from each other
};

}  // namespace gpucast::ptx

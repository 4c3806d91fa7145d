#include "src/kernels/byte_ranges.h"

#include <algorithm>
#include <utility>

namespace gpucast::ptx {

double ByteSet::bytes() const {
  double out = 0;
  for (const auto& [begin, end] : ranges) out += static_cast<double>(end - begin);
  return out;
}

ByteSet union_of(std::vector<ByteRange> ranges) {
  if (!std::is_sorted(ranges.begin(), ranges.end())) std::sort(ranges.begin(), ranges.end());
  size_t kept = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (kept > 0 && ranges[i].begin <= ranges[kept - 1].end) {
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, ranges[i].end);
    } else {
      ranges[kept++] = ranges[i];
    }
  }
  ranges.resize(kept);
  return {std::move(ranges)};
}

ByteSet union_of(const std::vector<ByteSet>& sets) {
  std::vector<ByteRange> all;
  for (const ByteSet& set : sets) all.insert(all.end(), set.ranges.begin(), set.ranges.end());
  return union_of(std::move(all));
}

}  // namespace gpucast::ptx

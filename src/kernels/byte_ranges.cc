#include "src/kernels/byte_ranges.h"

#include <algorithm>

namespace gpucast::ptx {
namespace {

constexpr size_t kMostRanges = 1U << 20;  // listed of one set

void merge(ByteSet* set) {
  auto& ranges = set->ranges;
  if (!std::is_sorted(ranges.begin(), ranges.end())) std::sort(ranges.begin(), ranges.end());
  size_t kept = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (kept > 0 && ranges[i].first <= ranges[kept - 1].second) {
      ranges[kept - 1].second = std::max(ranges[kept - 1].second, ranges[i].second);
    } else {
      ranges[kept++] = ranges[i];
    }
  }
  ranges.resize(kept);
}

}  // namespace

double ByteSet::bytes() const {
  double out = more;
  for (const auto& [begin, end] : ranges) out += static_cast<double>(end - begin);
  return out;
}

ByteSet union_of(const std::vector<const std::vector<ByteRange>*>& logs) {
  ByteSet out;
  for (const auto* log : logs) {
    for (const ByteRange& range : *log) {
      const uint64_t step = range.stride < 0 ? 0 - static_cast<uint64_t>(range.stride) : static_cast<uint64_t>(range.stride);
      const uint64_t first = range.stride < 0 ? range.begin - step * (range.count - 1) : range.begin;
      if (range.count == 1 || step == 0) {
        out.ranges.emplace_back(range.begin, range.begin + range.length);
      } else if (step <= range.length) {
        out.ranges.emplace_back(first, first + step * (range.count - 1) + range.length);
      } else {
        const uint64_t listed = std::min<uint64_t>(range.count, kMostRanges - std::min(out.ranges.size(), kMostRanges));
        for (uint64_t i = 0; i < listed; ++i) out.ranges.emplace_back(first + step * i, first + step * i + range.length);
        out.more += static_cast<double>(range.count - listed) * static_cast<double>(range.length);
      }
      if (out.ranges.size() >= 2 * kMostRanges) merge(&out);
    }
  }
  merge(&out);
  return out;
}

ByteSet union_of_sets(const std::vector<const ByteSet*>& sets) {
  ByteSet out;
  for (const ByteSet* set : sets) {
    out.ranges.insert(out.ranges.end(), set->ranges.begin(), set->ranges.end());
    out.more += set->more;
  }
  merge(&out);
  return out;
}

}  // namespace gpucast::ptx

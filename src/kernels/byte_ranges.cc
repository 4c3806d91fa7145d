#include "src/kernels/byte_ranges.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpucast::ptx {

namespace {

bool begins_before(const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; }

// By their begins, digit by digit. Digits that all have in common are left out: addresses of a kernel differ in few of them.
void sort_by_begin(std::vector<ByteRange>* ranges) {
  constexpr size_t kFew = 256;
  constexpr int kBits = 11;
  constexpr uint64_t kDigits = 1U << kBits;
  if (std::is_sorted(ranges->begin(), ranges->end(), begins_before)) return;
  if (ranges->size() < kFew) return std::sort(ranges->begin(), ranges->end(), begins_before);
  uint64_t differs = 0;
  for (const ByteRange& range : *ranges) differs |= range.begin ^ ranges->front().begin;
  std::vector<ByteRange> other(ranges->size());
  for (int shift = 0; shift < 64; shift += kBits) {
    if ((differs >> shift & (kDigits - 1)) == 0) continue;
    std::array<uint32_t, kDigits> next = {};
    for (const ByteRange& range : *ranges) ++next[range.begin >> shift & (kDigits - 1)];
    uint32_t sum = 0;
    for (uint32_t& at : next) sum += std::exchange(at, sum);
    for (const ByteRange& range : *ranges) other[next[range.begin >> shift & (kDigits - 1)]++] = range;
    ranges->swap(other);
  }
}

}  // namespace

double ByteSet::bytes() const {
  double out = 0;
  for (const auto& [begin, end] : ranges) out += static_cast<double>(end - begin);
  return out;
}

ByteSet union_of(std::vector<ByteRange> ranges) {
  sort_by_begin(&ranges);
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

namespace {

constexpr size_t kMostRoughRanges = 64;

// The first one that ends at or after `at`.
auto first_to(auto& ranges, uint64_t at) { return std::ranges::lower_bound(ranges, at, {}, &ByteRange::end); }

}  // namespace

void RoughByteSet::add(const ByteRange& range) {
  const auto first = first_to(ranges_, range.begin);
  auto last = first;
  for (; last != ranges_.end() && last->begin <= range.end; ++last) {
  }
  if (first != last) {  // one around them
    *first = {std::min(first->begin, range.begin), std::max(std::prev(last)->end, range.end)};
    ranges_.erase(std::next(first), last);
    return;
  }
  ranges_.insert(first, range);
  if (ranges_.size() <= kMostRoughRanges) return;
  size_t nearest = 0;
  const auto between = [&](size_t n) { return ranges_[n + 1].begin - ranges_[n].end; };
  for (size_t n = 1; n + 1 < ranges_.size(); ++n) nearest = between(n) < between(nearest) ? n : nearest;
  ranges_[nearest].end = ranges_[nearest + 1].end;
  ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(nearest) + 1);
}

bool RoughByteSet::touches(const ByteRange& range) const {
  const auto found = first_to(ranges_, range.begin + 1);
  return found != ranges_.end() && found->begin < range.end;
}

}  // namespace gpucast::ptx

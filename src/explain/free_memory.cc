#include "src/explain/free_memory.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "src/base/alloc_conf.h"

namespace gpucast {
namespace {

// The reserved address ranges.
class Ranges {
 public:
  void add_range(uint64_t address, int64_t bytes, bool expandable) {
    if (bytes <= 0) return;
    auto at = ranges_.insert_or_assign(address, Range{bytes, expandable}).first;
    if (!expandable) return;
    const auto next = std::next(at);
    if (next != ranges_.end() && next->second.expandable && end_of(at) == next->first) {
      at->second.bytes += next->second.bytes;
      ranges_.erase(next);
    }
    if (at == ranges_.begin()) return;
    const auto previous = std::prev(at);
    if (previous->second.expandable && end_of(previous) == at->first) {
      previous->second.bytes += at->second.bytes;
      ranges_.erase(at);
    }
  }

  void remove_range(uint64_t address, int64_t bytes) {
    auto at = ranges_.upper_bound(address);
    if (at == ranges_.begin()) return;
    --at;
    const uint64_t begin = at->first, end = end_of(at), stop = address + static_cast<uint64_t>(bytes);
    if (address >= end) return;
    const bool expandable = at->second.expandable;
    ranges_.erase(at);
    if (begin < address) ranges_[begin] = {static_cast<int64_t>(address - begin), expandable};
    if (stop < end) ranges_[stop] = {static_cast<int64_t>(end - stop), expandable};
  }

  std::vector<SegmentFilling> segments() const {
    std::vector<SegmentFilling> out;
    out.reserve(ranges_.size());
    for (const auto& [address, range] : ranges_) out.push_back({address, range.bytes, {}, {}});
    return out;
  }

 private:
  struct Range {
    int64_t bytes = 0;
    bool expandable = false;
  };
  using Map = std::map<uint64_t, Range>;
  static uint64_t end_of(Map::const_iterator at) { return at->first + static_cast<uint64_t>(at->second.bytes); }
  Map ranges_;
};

Ranges ranges_at(const Facts& facts, uint32_t position) {
  Ranges ranges;
  for (const SnapshotSegment& segment : facts.start.segments) ranges.add_range(segment.address, segment.size_bytes, segment.expandable);
  for (uint32_t i = 0; i < position; ++i) {
    const AllocatorEvent& event = facts.trace.events[i];
    if (event.kind == EventKind::segment_alloc) ranges.add_range(event.address, event.size_bytes, false);
    if (event.kind == EventKind::segment_map) ranges.add_range(event.address, event.size_bytes, true);
    if (event.kind == EventKind::segment_free || event.kind == EventKind::segment_unmap)
      ranges.remove_range(event.address, event.size_bytes);
  }
  return ranges;
}

}  // namespace

std::vector<SegmentFilling> segments_at(const Analysis& analysis, uint32_t position) {
  std::vector<SegmentFilling> segments = ranges_at(*analysis.facts, position).segments();
  const std::vector<Block>& blocks = analysis.facts->lifetimes.blocks;
  std::vector<uint32_t> alive;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].alive_at(position)) alive.push_back(static_cast<uint32_t>(i));
  }
  std::sort(alive.begin(), alive.end(), [&](uint32_t a, uint32_t b) { return blocks[a].address < blocks[b].address; });
  size_t next = 0;
  for (SegmentFilling& segment : segments) {
    const uint64_t end = segment.address + static_cast<uint64_t>(segment.bytes);
    // In a damaged capture, blocks may be outside of all segments.
    while (next < alive.size() && blocks[alive[next]].address < segment.address) ++next;
    uint64_t filled = segment.address;
    for (; next < alive.size() && blocks[alive[next]].address < end; ++next) {
      const Block& block = blocks[alive[next]];
      if (block.address > filled) segment.free.push_back({filled, static_cast<int64_t>(block.address - filled)});
      filled = std::max(filled, block.address + static_cast<uint64_t>(block.size_bytes));
      segment.blocks.push_back(alive[next]);
    }
    if (filled < end) segment.free.push_back({filled, static_cast<int64_t>(end - filled)});
  }
  return segments;
}

uint32_t fullest_position(const Analysis& analysis) {
  const Lifetimes& lifetimes = analysis.facts->lifetimes;
  const auto& oom = analysis.prediction.oom;
  if (oom && oom->ended_run) return lifetimes.ooms.back().event;
  const int64_t most = lifetimes.peak_reserved.bytes;
  uint32_t fullest = lifetimes.peak_reserved.position();
  for (uint32_t position = fullest; position <= lifetimes.reserved.size(); ++position) {
    if (lifetimes.reserved_at(position) == most && lifetimes.allocated_at(position) > lifetimes.allocated_at(fullest)) fullest = position;
  }
  return fullest;
}

}  // namespace gpucast

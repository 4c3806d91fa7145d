#include "src/lifetime/start_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace gpucast {
namespace {

constexpr int64_t kSmallSegmentBytes = 2 << 20;

class Rewinder {
 public:
  Rewinder(const std::vector<AllocatorEvent>& events, const std::vector<SnapshotSegment>& end_segments, const AllocConf& conf,
           Problems* problems)
      : events_(events), conf_(conf), problems_(problems) {
    for (const SnapshotSegment& segment : end_segments) {
      segments_[segment.address] = {
          segment.address, segment.size_bytes, segment.stream, segment.large, segment.expandable, segment.pool, {}};
      for (const SnapshotBlock& block : segment.blocks) {
        if (block.state != SnapshotBlockState::inactive) blocks_[block.address] = block;
      }
    }
  }

  StartState rewind() {
    for (at_ = events_.size(); at_-- > 0;) undo(events_[at_]);
    lay_out();
    settle_sizes();
    add_free_blocks();
    return std::move(out_);
  }

 private:
  using Segments = std::map<uint64_t, SnapshotSegment>;

  static uint64_t end_of(const SnapshotSegment& s) { return s.address + static_cast<uint64_t>(s.size_bytes); }

  void unclear(const char* what) {
    ++out_.unclear;
    const AllocatorEvent& event = events_[std::min(at_, events_.size() - 1)];
    problems_->add(Problem::start_unclear,
                   fmt::format("{}: allocator event {}, address {:#x}, {} bytes", what, at_, event.address, event.size_bytes));
  }

  void undo(const AllocatorEvent& event) {
    switch (event.kind) {
      case EventKind::alloc:
        if (blocks_.erase(event.address) == 0) unclear("an allocation whose block is gone without a free");
        break;
      case EventKind::free_completed: {
        SnapshotBlock block;
        block.address = event.address;
        block.requested_bytes = event.size_bytes;
        block.state = SnapshotBlockState::active_pending_free;
        if (!blocks_.insert_or_assign(event.address, block).second) unclear("a free of a block that is in use after it");
        break;
      }
      case EventKind::free_requested: {
        const auto found = blocks_.find(event.address);
        if (found == blocks_.end() || found->second.state != SnapshotBlockState::active_pending_free) {
          unclear("a free that was never completed");
          break;
        }
        found->second.state = SnapshotBlockState::active_allocated;
        break;
      }
      case EventKind::segment_alloc:
        undo_segment_alloc(event);
        break;
      case EventKind::segment_free:
        undo_segment_free(event, false);
        break;
      case EventKind::segment_map:
        undo_segment_map(event);
        break;
      case EventKind::segment_unmap:
        undo_segment_free(event, true);
        break;
      case EventKind::oom:
        break;
    }
  }

  // Drops blocks in memory that is undone: the history has the event that added their segment, but not their allocation.
  void drop_blocks(uint64_t begin, uint64_t end) {
    const auto first = blocks_.lower_bound(begin);
    const auto last = blocks_.lower_bound(end);
    if (first == last) return;
    unclear("a segment's first event comes after its use");
    blocks_.erase(first, last);
  }

  void undo_segment_alloc(const AllocatorEvent& event) {
    const auto found = segments_.find(event.address);
    if (found == segments_.end() || found->second.expandable) return unclear("a segment that is gone without a segment_free");
    drop_blocks(event.address, end_of(found->second));
    segments_.erase(found);
  }

  // Whether a segment overlaps [begin, end).
  bool overlaps(uint64_t begin, uint64_t end) const {
    auto next = segments_.lower_bound(begin);
    if (next != segments_.end() && next->first < end) return true;
    return next != segments_.begin() && end_of(std::prev(next)->second) > begin;
  }

  void undo_segment_free(const AllocatorEvent& event, bool expandable) {
    const uint64_t end = event.address + static_cast<uint64_t>(event.size_bytes);
    if (event.size_bytes == 0 || overlaps(event.address, end)) return unclear("a segment freed that is still there");
    SnapshotSegment segment{event.address, event.size_bytes, event.stream, event.size_bytes > kSmallSegmentBytes, expandable, {0, 0}, {}};
    auto placed = segments_.emplace(event.address, segment).first;
    if (!expandable) return;
    // Joins it with adjacent mapped memory of the same stream.
    const auto next = std::next(placed);
    if (next != segments_.end() && next->second.expandable && next->second.stream == event.stream && next->first == end) {
      placed->second.size_bytes += next->second.size_bytes;
      placed->second.large = next->second.large;
      placed->second.pool = next->second.pool;
      segments_.erase(next);
    }
    if (placed == segments_.begin()) return;
    const auto before = std::prev(placed);
    if (before->second.expandable && before->second.stream == event.stream && end_of(before->second) == event.address) {
      before->second.size_bytes += placed->second.size_bytes;
      segments_.erase(placed);
    }
  }

  void undo_segment_map(const AllocatorEvent& event) {
    const uint64_t end = event.address + static_cast<uint64_t>(event.size_bytes);
    auto found = segments_.upper_bound(event.address);
    if (found == segments_.begin() || event.size_bytes == 0) return unclear("a mapping that is gone without a segment_unmap");
    --found;
    if (!found->second.expandable || end > end_of(found->second)) return unclear("a mapping that is gone without a segment_unmap");
    drop_blocks(event.address, end);
    SnapshotSegment rest = found->second;
    rest.address = end;
    rest.size_bytes = static_cast<int64_t>(end_of(found->second) - end);
    found->second.size_bytes = static_cast<int64_t>(event.address - found->first);
    if (found->second.size_bytes == 0) segments_.erase(found);
    if (rest.size_bytes > 0) segments_.emplace(end, rest);
  }

  // Puts the remaining blocks into their segments. A block that was freed in the history gets its rounded requested size, or the whole gap
  // if the allocator would not have split it.
  void lay_out() {
    at_ = 0;
    auto block = blocks_.begin();
    for (auto& [address, segment] : segments_) {
      for (; block != blocks_.end() && block->first < address; ++block) unclear("a block outside of all segments");
      uint64_t used = address;
      for (; block != blocks_.end() && block->first < end_of(segment); ++block) {
        SnapshotBlock& placed = block->second;
        const auto next = std::next(block);
        const uint64_t limit = next == blocks_.end() ? end_of(segment) : std::min(next->first, end_of(segment));
        const auto room = static_cast<int64_t>(limit - placed.address);
        if (placed.address < used) {
          unclear("blocks that overlap");
          continue;
        }
        const bool known = placed.size_bytes > 0;
        int64_t size = known ? placed.size_bytes : conf_.round_size(placed.requested_bytes);
        if (size > room) {
          if (known) unclear("blocks that overlap");
          size = room;
        }
        const int64_t rest = room - size;
        if (!known && rest > 0) {
          if (!conf_.splits(size, rest, segment.expandable)) {
            size = room;
          } else if (!conf_.splits(size, AllocConf::kMinBlockBytes, segment.expandable)) {
            open_[placed.address] = {placed.address + static_cast<uint64_t>(size), limit};
          }
        }
        placed.size_bytes = size;
        used = placed.address + static_cast<uint64_t>(size);
        segment.blocks.push_back(placed);
      }
      out_.segments.push_back(std::move(segment));
    }
    for (; block != blocks_.end(); ++block) unclear("a block outside of all segments");
  }

  void settle_sizes() {
    if (open_.empty()) return;
    std::map<uint64_t, uint64_t> found;  // address of a block -> its end
    for (const AllocatorEvent& event : events_) {
      if (event.kind == EventKind::free_completed) {
        open_.erase(event.address);
      } else if (event.kind == EventKind::alloc) {
        auto gap = open_.upper_bound(event.address);
        if (gap == open_.begin()) continue;
        --gap;
        if (event.address < gap->second.first || event.address >= gap->second.second) continue;
        const auto rest = static_cast<int64_t>(event.address - gap->second.first);
        // A larger distance means that the allocation did not begin at the end of this block.
        if (rest <= AllocConf::kSmallBytes) found[gap->first] = event.address;
        open_.erase(gap);
      }
      if (open_.empty()) break;
    }
    for (SnapshotSegment& segment : out_.segments) {
      for (SnapshotBlock& block : segment.blocks) {
        const auto end = found.find(block.address);
        if (end != found.end()) block.size_bytes = static_cast<int64_t>(end->second - block.address);
      }
    }
  }

  void add_free_blocks() {
    for (SnapshotSegment& segment : out_.segments) {
      std::vector<SnapshotBlock> used;
      used.swap(segment.blocks);
      uint64_t at = segment.address;
      const auto fill_to = [&](uint64_t end) {
        if (end <= at) return;
        SnapshotBlock gap;
        gap.address = at;
        gap.size_bytes = static_cast<int64_t>(end - at);
        segment.blocks.push_back(gap);
      };
      for (const SnapshotBlock& block : used) {
        fill_to(block.address);
        segment.blocks.push_back(block);
        at = block.address + static_cast<uint64_t>(block.size_bytes);
        if (block.state == SnapshotBlockState::active_allocated) out_.allocated_bytes += block.size_bytes;
      }
      fill_to(end_of(segment));
      out_.reserved_bytes += segment.size_bytes;
    }
  }

  const std::vector<AllocatorEvent>& events_;
  const AllocConf& conf_;
  Problems* problems_;
  Segments segments_;
  std::map<uint64_t, SnapshotBlock> blocks_;                // in use; size 0: not known yet
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> open_;  // block -> the gap after it, which may partly belong to the block
  StartState out_;
  size_t at_ = 0;
};

}  // namespace

StartState reconstruct_start(const std::vector<AllocatorEvent>& events, const std::vector<SnapshotSegment>& end_segments,
                             const AllocConf& conf, Problems* problems) {
  if (events.empty()) return {};
  return Rewinder(events, end_segments, conf, problems).rewind();
}

}  // namespace gpucast

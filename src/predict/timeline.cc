#include "src/predict/timeline.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace gpucast {
namespace {

class SegmentFollower {
 public:
  explicit SegmentFollower(uint32_t end) : end_(end) {}

  void add(const SegmentLife& segment) { open_[segment.address] = segment; }

  void remove(uint64_t address, uint32_t position) {
    const auto found = open_.find(address);
    if (found != open_.end() && !found->second.expandable) close(found, position);
  }

  // Removes a part from the mapped ranges. The remaining parts of a range continue with their own addresses.
  void unmap(uint64_t address, int64_t size_bytes, uint32_t position) {
    const uint64_t end = address + static_cast<uint64_t>(size_bytes);
    auto at = open_.upper_bound(address);
    if (at != open_.begin()) --at;
    while (at != open_.end() && at->first < end) {
      const SegmentLife whole = at->second;
      const uint64_t whole_end = whole.address + static_cast<uint64_t>(whole.size_bytes);
      if (!whole.expandable || whole_end <= address) {
        ++at;
        continue;
      }
      at = close(at, position);
      if (whole.address < address) put_back(whole, whole.address, address, position);
      if (whole_end > end) put_back(whole, end, whole_end, position);
    }
  }

  std::vector<SegmentLife> finish() {
    for (auto& [address, segment] : open_) done_.push_back(segment);
    for (SegmentLife& segment : done_) segment.death = std::min(segment.death, end_);
    std::stable_sort(done_.begin(), done_.end(), [](const SegmentLife& a, const SegmentLife& b) { return a.birth < b.birth; });
    return std::move(done_);
  }

 private:
  using Open = std::map<uint64_t, SegmentLife>;

  Open::iterator close(Open::iterator at, uint32_t position) {
    at->second.death = position;
    if (at->second.death > at->second.birth) done_.push_back(at->second);
    return open_.erase(at);
  }

  void put_back(const SegmentLife& whole, uint64_t begin, uint64_t end, uint32_t position) {
    open_[begin] = {begin, static_cast<int64_t>(end - begin), whole.stream, true, position, end_};
  }

  Open open_;
  std::vector<SegmentLife> done_;
  uint32_t end_;  // the position after the last one
};

}  // namespace

std::vector<SegmentLife> segment_lives(const Facts& facts) {
  const Trace& trace = facts.trace;
  const auto end = static_cast<uint32_t>(trace.events.size() + 1);
  SegmentFollower follower(end);
  for (const SnapshotSegment& s : facts.start.segments) follower.add({s.address, s.size_bytes, s.stream, s.expandable, 0, end});
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const AllocatorEvent& event = trace.events[i];
    const uint32_t position = i + 1;
    switch (event.kind) {
      case EventKind::segment_alloc:
      case EventKind::segment_map:
        if (event.size_bytes <= 0) break;
        // Memory that is already mapped there was given back without a record.
        follower.unmap(event.address, event.size_bytes, position);
        if (event.kind == EventKind::segment_alloc) follower.remove(event.address, position);
        follower.add({event.address, event.size_bytes, event.stream, event.kind == EventKind::segment_map, position, end});
        break;
      case EventKind::segment_free:
        follower.remove(event.address, position);
        break;
      case EventKind::segment_unmap:
        // Refused unmaps (of memory in use) did not change `reserved`.
        if (facts.lifetimes.reserved_at(position) != facts.lifetimes.reserved_at(i))
          follower.unmap(event.address, event.size_bytes, position);
        break;
      default:
        break;
    }
  }
  return follower.finish();
}

std::vector<uint32_t> released_at(const Facts& facts) {
  const std::vector<Block>& blocks = facts.lifetimes.blocks;
  const std::vector<AllocatorEvent>& events = facts.trace.events;
  std::vector<uint32_t> released(blocks.size(), Block::kNever);
  std::vector<uint32_t> freed_by(events.size(), Block::kNever);  // by free event: the block that it ended
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].free_event != Block::kNever) freed_by[blocks[i].free_event] = i;
  }
  std::unordered_map<uint64_t, uint32_t> waiting;
  for (uint32_t i = 0; i < events.size(); ++i) {
    if (freed_by[i] != Block::kNever) {
      const uint32_t block = freed_by[i];
      // A block that ends without a free, because its segment ended, ends at once.
      if (events[i].kind == EventKind::free_requested) {
        waiting[blocks[block].address] = block;
      } else {
        released[block] = i + 1;
      }
    }
    if (events[i].kind != EventKind::free_completed) continue;
    const auto found = waiting.find(events[i].address);
    if (found == waiting.end()) continue;
    released[found->second] = i + 1;
    waiting.erase(found);
  }
  return released;
}

}  // namespace gpucast

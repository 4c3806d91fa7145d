#include "src/predict/segments_at_end.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/base/alloc_conf.h"

namespace gpucast {

std::vector<SnapshotSegment> segments_at_end(const Facts& facts) {
  const Trace& trace = facts.trace;
  const Lifetimes& lifetimes = facts.lifetimes;
  if (trace.header.source == "snapshot") return trace.end_segments;
  std::unordered_set<uint64_t> from_driver;  // allocated with cudaMalloc; others are mapped
  for (const AllocatorEvent& event : trace.events) {
    if (event.kind == EventKind::segment_alloc) from_driver.insert(event.address);
  }
  // Blocks in use, and blocks whose free has not completed.
  std::map<uint64_t, SnapshotBlock> blocks;
  std::unordered_map<uint32_t, size_t> freed_by;
  for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
    const Block& block = lifetimes.blocks[i];
    if (block.free_event != Block::kNever) {
      freed_by[block.free_event] = i;
    } else {
      blocks[block.address] = {block.address, block.size_bytes, block.requested_bytes, block.stack, SnapshotBlockState::active_allocated};
    }
  }
  std::unordered_map<uint64_t, size_t> pending;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const AllocatorEvent& event = trace.events[i];
    if (event.kind == EventKind::free_completed) pending.erase(event.address);
    if (event.kind != EventKind::free_requested) continue;
    const auto freed = freed_by.find(i);
    if (freed != freed_by.end()) pending[event.address] = freed->second;
  }
  for (const auto& [address, i] : pending) {
    const Block& block = lifetimes.blocks[i];
    blocks.try_emplace(
        address, SnapshotBlock{address, block.size_bytes, block.requested_bytes, block.stack, SnapshotBlockState::active_pending_free});
  }

  std::vector<SnapshotSegment> out;
  auto next = blocks.begin();
  for (const RecordedSegment& recorded : lifetimes.segments) {
    SnapshotSegment segment;
    segment.address = recorded.address;
    segment.size_bytes = recorded.size_bytes;
    segment.stream = recorded.stream;
    segment.expandable = !from_driver.contains(recorded.address);
    const uint64_t end = recorded.address + static_cast<uint64_t>(recorded.size_bytes);
    uint64_t at = recorded.address;
    int64_t largest_bytes = 0;
    const auto fill_to = [&](uint64_t limit) {
      if (limit > at) segment.blocks.push_back({at, static_cast<int64_t>(limit - at), 0, StackId(), SnapshotBlockState::inactive});
      at = limit;
    };
    while (next != blocks.end() && next->first < at) ++next;  // outside of all segments: the history is incomplete
    for (; next != blocks.end() && next->first < end; ++next) {
      SnapshotBlock block = next->second;
      if (block.address < at) continue;
      block.size_bytes = std::min(block.size_bytes, static_cast<int64_t>(end - block.address));
      block.requested_bytes = std::min(block.requested_bytes, block.size_bytes);
      fill_to(block.address);
      at += static_cast<uint64_t>(block.size_bytes);
      largest_bytes = std::max(largest_bytes, block.requested_bytes);
      segment.blocks.push_back(block);
    }
    fill_to(end);
    segment.large = segment.expandable ? largest_bytes > AllocConf::kSmallBytes || (segment.blocks.size() == 1 && largest_bytes == 0 &&
                                                                                    segment.size_bytes > AllocConf::kSmallSegmentBytes)
                                       : segment.size_bytes > AllocConf::kSmallSegmentBytes;
    out.push_back(std::move(segment));
  }
  return out;
}

}  // namespace gpucast

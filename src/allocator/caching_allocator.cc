#include "src/allocator/caching_allocator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace gpucast {
namespace {

constexpr uint32_t kLargePool = 0, kSmallPool = 1;

// PyTorch's hash of a CUDA stream of device 0 (c10/core/Stream.h).
uint64_t stream_hash(uint64_t stream_id) {
  constexpr uint64_t kCuda = 1;
  return kCuda << 56 | (stream_id & ((uint64_t{1} << 48) - 1));
}

// A snapshot does not show the age of its segments. On Linux, the driver's ranges of 32 MiB lie each below the last, and fill upwards.
std::vector<uint32_t> likely_ages(const std::vector<Segment>& segments) {
  constexpr int kRangeShift = 25;
  std::vector<uint32_t> oldest_first(segments.size());
  std::iota(oldest_first.begin(), oldest_first.end(), 0);
  std::sort(oldest_first.begin(), oldest_first.end(), [&](uint32_t a, uint32_t b) {
    const uint64_t at = segments[a].address;
    const uint64_t bt = segments[b].address;
    return at >> kRangeShift != bt >> kRangeShift ? at > bt : at < bt;
  });
  std::vector<uint32_t> ages(segments.size());
  for (uint32_t i = 0; i < ages.size(); ++i) ages[oldest_first[i]] = i + 1;
  return ages;
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocConf& conf, Streams streams, Driver* driver)
    : conf_(conf), streams_(std::move(streams)), driver_(driver), event_streams_(&stream_hashes_), releasable_pools_(&pool_hashes_) {
  const size_t count = streams_.handles.size();
  for (size_t i = 0; i < count; ++i) {
    stream_hashes_.push_back(stream_hash(streams_.ids.empty() ? streams_.handles[i] : streams_.ids[i]));
  }
  stream_order_.resize(count);
  std::iota(stream_order_.begin(), stream_order_.end(), StreamIndex{0});
  std::stable_sort(stream_order_.begin(), stream_order_.end(),
                   [&](StreamIndex a, StreamIndex b) { return streams_.handles[a] < streams_.handles[b]; });
  events_.resize(count);
  held_.resize(count);
  add_pool(false, 0);
  add_pool(true, 0);
  if (conf_.per_process_memory_fraction < 1) CachingAllocator::set_memory_fraction(conf_.per_process_memory_fraction);
}

CachingAllocator::~CachingAllocator() = default;

// ---- blocks ---------------------------------------------------------------------------------------------------------------

uint32_t CachingAllocator::add_pool(bool small, uint32_t owner) {
  Pool pool;
  pool.small = small;
  pool.owner = owner;
  pool.free.resize(streams_.handles.size());
  pool.unmapped.resize(streams_.handles.size());
  pools_.push_back(std::move(pool));
  return static_cast<uint32_t>(pools_.size() - 1);
}

// The age of a new segment. Up to 2.11 only its address matters.
uint32_t CachingAllocator::next_order() { return conf_.torch_minor < 12 ? 0 : ++newest_order_; }

BlockRef CachingAllocator::new_block(StreamIndex stream, int64_t size_bytes, uint32_t pool, uint64_t address, uint32_t order) {
  BlockRef block = 0;
  if (unused_.empty()) {
    block = static_cast<BlockRef>(blocks_.size());
    blocks_.emplace_back();
  } else {
    block = unused_.back();
    unused_.pop_back();
    blocks_[block] = Block{};
  }
  Block& b = blocks_[block];
  b.stream = stream;
  b.size_bytes = size_bytes;
  b.pool = pool;
  b.address = address;
  b.order = conf_.torch_minor == 12 ? ++newest_order_ : order;  // 2.12 counts blocks, later releases count segments
  return block;
}

void CachingAllocator::insert_free(BlockRef block) {
  Block& b = blocks_[block];
  Pool& pool = pools_[b.pool];
  b.age_base = pool.searches;
  pool.free[b.stream].insert({b.size_bytes, b.address, b.order, block});
}

void CachingAllocator::erase_free(BlockRef block) {
  const Block& b = blocks_[block];
  pools_[b.pool].free[b.stream].erase(b.size_bytes, b.order, b.address);
}

void CachingAllocator::insert_unmapped(BlockRef block) {
  const Block& b = blocks_[block];
  pools_[b.pool].unmapped[b.stream].emplace(b.address, block);
}

void CachingAllocator::splice(BlockRef block, BlockRef before, BlockRef after) {
  if (before != kNoBlock) blocks_[before].next = block;
  if (after != kNoBlock) blocks_[after].previous = block;
  blocks_[block].previous = before;
  blocks_[block].next = after;
}

// Merges the neighbour `from` into `into` if it is free and both are mapped or both unmapped. Returns the bytes gained.
int64_t CachingAllocator::merge(BlockRef into, BlockRef from) {
  if (!can_use(from) || blocks_[into].mapped != blocks_[from].mapped) return 0;
  Block& a = blocks_[into];
  const Block& b = blocks_[from];
  if (b.mapped) {
    erase_free(from);
  } else {
    pools_[b.pool].unmapped[b.stream].erase(b.address);
  }
  if (a.previous == from) {
    a.address = b.address;
    a.previous = b.previous;
    if (a.previous != kNoBlock) blocks_[a.previous].next = into;
  } else {
    a.next = b.next;
    if (a.next != kNoBlock) blocks_[a.next].previous = into;
  }
  const int64_t gained = b.size_bytes;
  a.size_bytes += gained;
  drop_block(from);
  return gained;
}

void CachingAllocator::reserve_more(int64_t size_bytes) {
  stats_.reserved_bytes += size_bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  ++stats_.segment_allocs;
}

// ---- allocation -------------------------------------------------------------------------------------------------------------

uint32_t CachingAllocator::pool_for(int64_t size_bytes, StreamIndex stream) const {
  const bool small = size_bytes <= AllocConf::kSmallBytes;
  const auto matches = [&](const Begun& begun) {
    return !begun.stream || *begun.stream == stream || (*begun.stream == kCapturedStreams && streams_.handles[stream] != 0);
  };
  const auto chosen = [&](const Begun& begun) {
    const PrivatePool& pool = private_pools_.at(begun.pool);
    return small ? pool.small : pool.large;
  };
  if (conf_.torch_minor < 9) {  // older releases use the pool begun first, later ones the last
    const auto begun = std::find_if(begun_pools_.begin(), begun_pools_.end(), matches);
    if (begun != begun_pools_.end()) return chosen(*begun);
  } else {
    const auto begun = std::find_if(begun_pools_.rbegin(), begun_pools_.rend(), matches);
    if (begun != begun_pools_.rend()) return chosen(*begun);
  }
  return small ? kSmallPool : kLargePool;
}

int64_t CachingAllocator::segment_size(int64_t size_bytes) const {
  if (size_bytes <= AllocConf::kSmallBytes) return AllocConf::kSmallSegmentBytes;
  if (size_bytes < AllocConf::kMinLargeBytes) return conf_.large_segment_bytes;
  return (size_bytes + AllocConf::kRoundLargeBytes - 1) / AllocConf::kRoundLargeBytes * AllocConf::kRoundLargeBytes;
}

BlockRef CachingAllocator::allocate(int64_t size_bytes, StreamIndex stream) {
  if (!capturing()) process_events();
  Request request;
  request.size_bytes = conf_.round_size(size_bytes);
  request.segment_bytes = segment_size(request.size_bytes);
  request.stream = stream;
  request.pool = pool_for(request.size_bytes, stream);

  BlockRef block = find_free(request);
  if (block == kNoBlock) {
    if (collects_garbage()) collect_garbage();
    block = new_segment(request);
    if (block == kNoBlock && !rejected_ && release_oversize(request)) block = new_segment(request);
    if (block == kNoBlock && !rejected_ && !capturing()) {
      release_cached();
      ++stats_.alloc_retries;
      block = new_segment(request);
    }
  }
  if (rejected_) {
    rejected_ = false;
    fill_out_of_memory(request);  // no line in the history, and the count of failures does not change
    return kNoBlock;
  }
  if (block == kNoBlock) {
    note_out_of_memory(request);
    return kNoBlock;
  }
  return hand_out(block, size_bytes, request);
}

// Best fit: the smallest free block that is large enough, and the lowest address among equal ones. Removes it from the pool.
BlockRef CachingAllocator::find_free(const Request& request) {
  Pool& pool = pools_[request.pool];
  if (collects_garbage()) ++pool.searches;
  FreeBlocks& free = pool.free[request.stream];
  FreeBlocks::Position at = free.lower_bound(request.size_bytes);
  if (free.at_end(at)) return kNoBlock;
  const auto expandable = [&](FreeBlocks::Position p) { return blocks_[free[p].block].range != kNoBlock; };
  if (expandable(at)) {
    if (conf_.expandable_segments) {
      // A block at the end of the mapped part counts with the size that it could grow to.
      const auto could_be = [&](FreeBlocks::Position p) {
        const Block& b = blocks_[free[p].block];
        return b.size_bytes + (b.next != kNoBlock && !blocks_[b.next].mapped ? blocks_[b.next].size_bytes : 0);
      };
      for (FreeBlocks::Position next = free.next(at); expandable(at) && !free.at_end(next) && could_be(next) < could_be(at);
           next = free.next(next)) {
        at = next;
      }
    } else {
      // The setting was turned off during the run: expandable blocks are skipped, but only consecutive ones.
      do {
        at = free.next(at);
      } while (!free.at_end(at) && expandable(at));
      if (free.at_end(at)) return kNoBlock;
    }
  }
  const int64_t found_bytes = free[at].size_bytes;
  if (request.size_bytes < conf_.max_split_size_bytes && found_bytes >= conf_.max_split_size_bytes) return kNoBlock;
  if (request.size_bytes >= conf_.max_split_size_bytes && found_bytes >= request.size_bytes + conf_.max_non_split_rounding_bytes) {
    return kNoBlock;
  }
  const BlockRef block = free[at].block;
  free.erase(at);
  return block;
}

// throw_on_cudamalloc_oom: the driver gets no request.
bool CachingAllocator::is_rejected(const Request& request) const {
  if (!conf_.throw_on_cudamalloc_oom || conf_.torch_minor < 12) return false;
  return stats_.reserved_bytes + request.segment_bytes >
         static_cast<int64_t>(conf_.per_process_memory_fraction * static_cast<double>(driver_->total_bytes()));
}

BlockRef CachingAllocator::new_segment(const Request& request) {
  if (allowed_bytes_ && stats_.reserved_bytes + request.segment_bytes > *allowed_bytes_) return kNoBlock;
  rejected_ = is_rejected(request);
  if (rejected_) return kNoBlock;
  if (conf_.expandable_segments) {
    const BlockRef block = new_expandable(request);
    if (block != kNoBlock && pools_[request.pool].owner != 0) ++private_pools_[pools_[request.pool].owner].segments;
    return block;
  }
  const std::optional<uint64_t> address = driver_->allocate(request.segment_bytes);
  if (!address) return kNoBlock;
  if (pools_[request.pool].owner != 0) ++private_pools_[pools_[request.pool].owner].segments;
  ++stats_.segments;
  reserve_more(request.segment_bytes);
  const BlockRef block = new_block(request.stream, request.segment_bytes, request.pool, *address, next_order());
  record(EventKind::segment_alloc, *address, request.segment_bytes, request.stream);
  return block;
}

BlockRef CachingAllocator::hand_out(BlockRef block, int64_t requested_bytes, const Request& request) {
  if (conf_.splits(request.size_bytes, blocks_[block].size_bytes - request.size_bytes, conf_.expandable_segments)) {
    const BlockRef rest = block;
    block = new_block(request.stream, request.size_bytes, request.pool, blocks_[rest].address, blocks_[rest].order);
    blocks_[block].range = blocks_[rest].range;
    splice(block, blocks_[rest].previous, rest);
    blocks_[rest].address += static_cast<uint64_t>(request.size_bytes);
    blocks_[rest].size_bytes -= request.size_bytes;
    insert_free(rest);
  }
  Block& b = blocks_[block];
  b.allocated = true;
  b.requested_bytes = requested_bytes;
  record(EventKind::alloc, b.address, requested_bytes, b.stream);
  stats_.allocated_bytes += b.size_bytes;
  stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
  stats_.active_bytes += b.size_bytes;
  stats_.requested_bytes += requested_bytes;
  return block;
}

void CachingAllocator::note_out_of_memory(const Request& request) {
  fill_out_of_memory(request);
  ++stats_.ooms;
  record(EventKind::oom, static_cast<uint64_t>(driver_->free_bytes()), request.size_bytes, request.stream);
}

void CachingAllocator::fill_out_of_memory(const Request& request) {
  out_of_memory_ = {};
  out_of_memory_.requested_bytes = request.segment_bytes;
  out_of_memory_.device_free_bytes = driver_->free_bytes();
  out_of_memory_.device_total_bytes = driver_->total_bytes();
  out_of_memory_.allowed_bytes = allowed_bytes_;
  for (const Pool& pool : pools_) {
    if (pool.owner == 0) continue;
    for (const FreeBlocks& free : pool.free) {
      free.for_each([&](const FreeBlocks::Entry& entry) { out_of_memory_.private_pool_bytes += entry.size_bytes; });
    }
  }
  out_of_memory_.allocated_bytes = stats_.allocated_bytes + out_of_memory_.private_pool_bytes;
  out_of_memory_.unallocated_bytes = stats_.reserved_bytes - out_of_memory_.allocated_bytes;
}

// ---- expandable segments ------------------------------------------------------------------------------------------------------

// Addresses for all of the card's memory plus an eighth.
CachingAllocator::Range CachingAllocator::unplaced_range(bool small, int64_t least_bytes) const {
  Range range;
  range.step_bytes = small ? AllocConf::kSmallSegmentBytes : conf_.large_segment_bytes;
  const int64_t room_bytes = std::max(driver_->total_bytes() + driver_->total_bytes() / 8, least_bytes);
  range.size_bytes = (room_bytes + range.step_bytes - 1) / range.step_bytes * range.step_bytes;
  return range;
}

// The lowest address in any range of this stream where consecutive free and unmapped blocks have room; otherwise a new range.
BlockRef CachingAllocator::find_expandable(const Request& request) {
  const auto has_room = [&](BlockRef block) {
    int64_t bytes = 0;
    for (; bytes < request.size_bytes && can_use(block); block = blocks_[block].next) bytes += blocks_[block].size_bytes;
    return bytes >= request.size_bytes;
  };
  for (const auto& [address, unmapped] : pools_[request.pool].unmapped[request.stream]) {
    const BlockRef first = can_use(blocks_[unmapped].previous) ? blocks_[unmapped].previous : unmapped;
    if (has_room(first)) return first;
  }
  Range range = unplaced_range(pools_[request.pool].small);
  if (conf_.torch_minor >= 15 && request.size_bytes > range.size_bytes) return kNoBlock;  // no range is that large
  range.address = driver_->reserve(range.size_bytes);
  ranges_.push_back(range);
  const BlockRef block = new_block(request.stream, range.size_bytes, request.pool, range.address, next_order());
  blocks_[block].mapped = false;
  blocks_[block].range = static_cast<uint32_t>(ranges_.size() - 1);
  insert_unmapped(block);
  return block;
}

bool CachingAllocator::map_block(BlockRef block, int64_t size_bytes) {
  const Range& range = ranges_[blocks_[block].range];
  const uint64_t begin = blocks_[block].address;
  const auto mapped_bytes = static_cast<int64_t>(range.round_up(begin + static_cast<uint64_t>(size_bytes)) - begin);
  if (!driver_->map(begin, mapped_bytes)) return false;
  const StreamIndex stream = blocks_[block].stream;
  const uint32_t pool = blocks_[block].pool;
  pools_[pool].unmapped[stream].erase(begin);
  blocks_[block].mapped = true;
  if (mapped_bytes < blocks_[block].size_bytes) {
    const BlockRef rest = new_block(stream, blocks_[block].size_bytes - mapped_bytes, pool, begin + static_cast<uint64_t>(mapped_bytes),
                                    blocks_[block].order);
    blocks_[rest].mapped = false;
    blocks_[rest].range = blocks_[block].range;
    splice(rest, block, blocks_[block].next);
    insert_unmapped(rest);
    blocks_[block].size_bytes = mapped_bytes;
  }
  merge(block, blocks_[block].previous);
  merge(block, blocks_[block].next);
  insert_free(block);
  reserve_more(mapped_bytes);
  record(EventKind::segment_map, begin, mapped_bytes, stream);
  return true;
}

BlockRef CachingAllocator::new_expandable(const Request& request) {
  BlockRef block = find_expandable(request);
  if (block == kNoBlock) return kNoBlock;
  if (!blocks_[block].mapped && !map_block(block, std::min(blocks_[block].size_bytes, request.size_bytes))) return kNoBlock;
  while (blocks_[block].size_bytes < request.size_bytes) {
    const BlockRef next = blocks_[block].next;  // unmapped; once mapped, it merges with `block`
    if (next == kNoBlock) return kNoBlock;      // more than the card has: its range ends here
    if (!map_block(next, std::min(request.size_bytes - blocks_[block].size_bytes, blocks_[next].size_bytes))) return kNoBlock;
    block = next;
  }
  erase_free(block);
  return block;
}

// Unmaps the whole pages of a free block. The parts before and after them stay mapped.
void CachingAllocator::unmap_block(BlockRef block) {
  const Range& range = ranges_[blocks_[block].range];
  const uint64_t begin = blocks_[block].address;
  const uint64_t end = begin + static_cast<uint64_t>(blocks_[block].size_bytes);
  const uint64_t first = range.round_up(begin);
  const uint64_t last = range.round_down(end);
  if (first >= last) return;
  const StreamIndex stream = blocks_[block].stream;
  const uint32_t pool = blocks_[block].pool;
  const auto unmapped_bytes = static_cast<int64_t>(last - first);
  for (Pending& pending : events_[stream]) pending.done = true;  // PyTorch first waits for the stream
  driver_->unmap(first, unmapped_bytes);
  erase_free(block);
  if (first > begin) {
    const BlockRef before = new_block(stream, static_cast<int64_t>(first - begin), pool, begin, blocks_[block].order);
    blocks_[before].range = blocks_[block].range;
    splice(before, blocks_[block].previous, block);
    insert_free(before);
  }
  if (end > last) {
    const BlockRef after = new_block(stream, static_cast<int64_t>(end - last), pool, last, blocks_[block].order);
    blocks_[after].range = blocks_[block].range;
    splice(after, block, blocks_[block].next);
    insert_free(after);
  }
  blocks_[block].address = first;
  blocks_[block].size_bytes = unmapped_bytes;
  blocks_[block].mapped = false;
  merge(block, blocks_[block].previous);
  merge(block, blocks_[block].next);
  insert_unmapped(block);
  stats_.reserved_bytes -= unmapped_bytes;
  ++stats_.segment_frees;
  if (pools_[pool].owner != 0) --private_pools_[pools_[pool].owner].segments;
  record(EventKind::segment_unmap, first, unmapped_bytes, stream);
}

// ---- Returning memory -----------------------------------------------------------------------------------------------------------

void CachingAllocator::release_block(BlockRef block) {
  const Block& b = blocks_[block];
  record(EventKind::segment_free, b.address, b.size_bytes, b.stream);
  finish_submitted_work();  // cudaFree waits for the device
  driver_->free(b.address, b.size_bytes);
  Pool& pool = pools_[b.pool];
  if (pool.owner != 0) --private_pools_[pool.owner].segments;
  --stats_.segments;
  ++stats_.segment_frees;
  stats_.reserved_bytes -= b.size_bytes;
  erase_free(block);
  drop_block(block);
}

void CachingAllocator::release_free_blocks(uint32_t pool) {
  std::vector<BlockRef> whole, to_unmap;
  for (const StreamIndex stream : stream_order_) {
    pools_[pool].free[stream].for_each([&](const FreeBlocks::Entry& entry) {
      const Block& b = blocks_[entry.block];
      if (b.range != kNoBlock) {
        to_unmap.push_back(entry.block);
      } else if (!is_split(b)) {
        whole.push_back(entry.block);
      }
    });
  }
  for (const BlockRef block : whole) release_block(block);
  for (const BlockRef block : to_unmap) {
    unmap_block(block);
    const Block& b = blocks_[block];
    if (is_split(b)) continue;
    driver_->release(b.address, b.size_bytes);  // nothing of the range is mapped any more
    pools_[b.pool].unmapped[b.stream].erase(b.address);
    drop_block(block);
  }
}

void CachingAllocator::release_cached() {
  if (!capturing()) {
    synchronize_events();
    release_free_blocks(kLargePool);
    release_free_blocks(kSmallPool);
  }
  releasable_pools_.visit([&](uint32_t index) {
    const uint32_t number = pool_numbers_[index];
    const PrivatePool& pool = private_pools_.at(number);
    release_free_blocks(pool.small);
    release_free_blocks(pool.large);
    if (pool.segments != 0) return false;
    private_pools_.erase(number);
    return true;
  });
}

// max_split_size: frees one cached block above it that could hold the request, or several, the largest first.
bool CachingAllocator::release_oversize(const Request& request) {
  if (conf_.max_split_size_bytes == AllocConf().max_split_size_bytes) return false;
  FreeBlocks& free = pools_[request.pool].free[request.stream];
  const int64_t wanted_bytes = std::max(request.size_bytes, conf_.max_split_size_bytes);
  const auto expandable = [&](FreeBlocks::Position p) { return blocks_[free[p].block].range != kNoBlock; };
  FreeBlocks::Position at = free.lower_bound(wanted_bytes);
  if (!free.at_end(at) && !expandable(at)) {
    release_block(free[at].block);
    return true;
  }
  std::vector<BlockRef> chosen;
  int64_t released_bytes = 0;
  while (!free.at_begin(at) && released_bytes < wanted_bytes) {
    at = free.previous(at);
    if (free[at].size_bytes < conf_.max_split_size_bytes) break;
    if (expandable(at)) continue;
    released_bytes += free[at].size_bytes;
    chosen.push_back(free[at].block);
  }
  for (const BlockRef block : chosen) release_block(block);
  return released_bytes >= wanted_bytes;
}

// Frees whole cached segments that were unused for longer than the average, until enough is freed or none is left.
void CachingAllocator::collect_garbage() {
  const auto threshold_bytes = static_cast<int64_t>(conf_.garbage_collection_threshold * static_cast<double>(*allowed_bytes_));
  if (stats_.reserved_bytes <= threshold_bytes) return;
  const int64_t target_bytes = stats_.reserved_bytes - threshold_bytes;
  const auto age = [&](BlockRef block) {
    return static_cast<int64_t>(static_cast<int32_t>(pools_[kLargePool].searches - blocks_[block].age_base));
  };
  int64_t total_age = 0;
  int64_t count = 0;
  std::vector<BlockRef> candidates;
  for (const StreamIndex stream : stream_order_) {
    pools_[kLargePool].free[stream].for_each([&](const FreeBlocks::Entry& entry) {
      if (is_split(blocks_[entry.block])) return;
      total_age += age(entry.block);
      ++count;
      if (blocks_[entry.block].range == kNoBlock) candidates.push_back(entry.block);
    });
  }
  int64_t reclaimed_bytes = 0;
  bool freed = true;
  while (reclaimed_bytes < target_bytes && freed && count > 0) {
    const double least_age = static_cast<double>(total_age) / static_cast<double>(count);
    freed = false;
    std::vector<BlockRef> kept;
    for (const BlockRef block : candidates) {
      if (static_cast<double>(age(block)) < least_age) {
        kept.push_back(block);
        continue;
      }
      freed = true;
      reclaimed_bytes += blocks_[block].size_bytes;
      total_age -= age(block);
      --count;
      release_block(block);
    }
    candidates = std::move(kept);
  }
}

void CachingAllocator::empty_cache() { release_cached(); }

void CachingAllocator::set_memory_fraction(double fraction) {
  const double bytes = fraction * static_cast<double>(driver_->total_bytes());
  allowed_bytes_ = conf_.torch_minor < 13 ? static_cast<int64_t>(bytes) : std::llround(bytes);
  if (conf_.torch_minor >= 9 && fraction >= 1) allowed_bytes_.reset();
}

// ---- freeing ----------------------------------------------------------------------------------------------------------------------

void CachingAllocator::start_free(BlockRef block) {
  Block& b = blocks_[block];
  b.allocated = false;
  stats_.allocated_bytes -= b.size_bytes;
  record(EventKind::free_requested, b.address, b.requested_bytes, b.stream);
}

void CachingAllocator::free(BlockRef block) {
  start_free(block);
  if (!blocks_[block].used_by_streams) {
    make_free(block);
  } else if (capturing()) {
    freed_in_capture_.push_back(block);
  } else {
    wait_for_streams(block);
  }
}

void CachingAllocator::make_free(BlockRef block) {
  record(EventKind::free_completed, blocks_[block].address, blocks_[block].requested_bytes, blocks_[block].stream);
  stats_.active_bytes -= blocks_[block].size_bytes;
  stats_.requested_bytes -= blocks_[block].requested_bytes;
  const BlockRef previous = blocks_[block].previous;
  const BlockRef next = blocks_[block].next;
  merge(block, previous);
  merge(block, next);
  insert_free(block);
}

uint32_t CachingAllocator::free_later(BlockRef block) {
  start_free(block);
  if (blocks_[block].used_by_streams) stream_uses_.erase(block);
  blocks_[block].used_by_streams = false;
  blocks_[block].pending = 1;
  later_.emplace(next_ticket_, block);
  return next_ticket_++;
}

void CachingAllocator::complete(uint32_t ticket) {
  const auto it = later_.find(ticket);
  if (it == later_.end()) return;
  const BlockRef block = it->second;
  later_.erase(it);
  blocks_[block].pending = 0;
  make_free(block);
}

void CachingAllocator::record_stream(BlockRef block, StreamIndex stream) {
  if (stream == blocks_[block].stream) return;
  blocks_[block].used_by_streams = true;
  stream_uses_.try_emplace(block, &stream_hashes_).first->second.insert(stream);
  if (capturing()) capture_uses_.try_emplace(block, &stream_hashes_).first->second.insert(stream);
}

void CachingAllocator::hold_stream(StreamIndex stream) { held_[stream] = true; }

void CachingAllocator::finish_stream(StreamIndex stream) {
  held_[stream] = false;
  for (Pending& pending : events_[stream]) pending.done = true;
}

void CachingAllocator::finish_submitted_work() {
  for (std::deque<Pending>& events : events_) {
    for (Pending& pending : events) pending.done = true;
  }
}

void CachingAllocator::wait_for_streams(BlockRef block) {
  stream_uses_.at(block).visit([&](uint32_t stream) {
    ++blocks_[block].pending;
    event_streams_.insert(stream);
    events_[stream].push_back({block, !held_[stream]});
    return false;
  });
  stream_uses_.erase(block);
  blocks_[block].used_by_streams = false;
}

void CachingAllocator::insert_deferred_events() {
  for (const BlockRef block : freed_in_capture_) {
    // Streams recorded during the capture need no event: the graph orders them.
    const auto captured = capture_uses_.find(block);
    if (captured != capture_uses_.end()) {
      std::vector<bool> drop(streams_.handles.size());
      captured->second.visit([&](uint32_t stream) {
        drop[stream] = true;
        return false;
      });
      StreamTable kept(&stream_hashes_);
      stream_uses_.at(block).visit([&](uint32_t stream) {
        if (!drop[stream]) kept.insert(stream);
        return false;
      });
      stream_uses_.at(block) = std::move(kept);
      capture_uses_.erase(captured);
    }
    wait_for_streams(block);
    if (blocks_[block].pending == 0) make_free(block);
  }
  freed_in_capture_.clear();
}

void CachingAllocator::process_events() {
  if (!freed_in_capture_.empty()) insert_deferred_events();
  if (event_streams_.empty()) return;
  event_streams_.visit([&](uint32_t stream) {
    std::deque<Pending>& events = events_[stream];
    while (!events.empty() && events.front().done) {
      const BlockRef block = events.front().block;
      if (--blocks_[block].pending == 0) make_free(block);
      events.pop_front();
    }
    return events.empty();
  });
}

void CachingAllocator::synchronize_events() {
  insert_deferred_events();
  event_streams_.visit([&](uint32_t stream) {
    for (const Pending& pending : events_[stream]) {
      if (--blocks_[pending.block].pending == 0) make_free(pending.block);
    }
    events_[stream].clear();
    return true;
  });
  while (!later_.empty()) complete(later_.begin()->first);
}

// ---- private pools ------------------------------------------------------------------------------------------------------------------

CachingAllocator::PrivatePool& CachingAllocator::private_pool(uint32_t number) {
  const auto [it, fresh] = private_pools_.try_emplace(number);
  if (fresh) {
    it->second.small = add_pool(true, number);
    it->second.large = add_pool(false, number);
    it->second.index = static_cast<uint32_t>(pool_numbers_.size());
    pool_numbers_.push_back(number);
    pool_hashes_.push_back(number);  // c10::MempoolIdHash of (0, number)
  }
  return it->second;
}

void CachingAllocator::begin_pool(uint32_t pool, std::optional<StreamIndex> stream) {
  ++private_pool(pool).uses;
  begun_pools_.push_back({pool, stream});
}

void CachingAllocator::end_pool(uint32_t pool) {
  const auto begun = std::find_if(begun_pools_.begin(), begun_pools_.end(), [&](const Begun& b) { return b.pool == pool; });
  if (begun != begun_pools_.end()) begun_pools_.erase(begun);
}

void CachingAllocator::release_pool(uint32_t pool) {
  const auto it = private_pools_.find(pool);
  if (it != private_pools_.end() && --it->second.uses == 0) releasable_pools_.insert(it->second.index);
}

// ---- Inspection -----------------------------------------------------------------------------------------------------------------------

std::vector<Segment> CachingAllocator::segments() const {
  std::vector<bool> unused(blocks_.size());
  for (const BlockRef block : unused_) unused[block] = true;
  std::vector<Segment> out;
  for (BlockRef head = 0; head < blocks_.size(); ++head) {
    const Block& first = blocks_[head];
    if (unused[head] || !first.mapped || (first.previous != kNoBlock && blocks_[first.previous].mapped)) continue;
    Segment segment;
    segment.address = first.address;
    segment.stream = first.stream;
    segment.large = !pools_[first.pool].small;
    segment.expandable = first.range != kNoBlock;
    segment.pool = pools_[first.pool].owner;
    for (BlockRef at = head; at != kNoBlock && blocks_[at].mapped; at = blocks_[at].next) {
      const Block& b = blocks_[at];
      const bool active = b.allocated || b.pending > 0 || b.used_by_streams;
      segment.blocks.push_back({b.address, b.size_bytes, b.requested_bytes,
                                b.allocated ? BlockState::allocated
                                : active    ? BlockState::pending_free
                                            : BlockState::inactive});
      segment.size_bytes += b.size_bytes;
    }
    out.push_back(std::move(segment));
  }
  std::sort(out.begin(), out.end(), [](const Segment& a, const Segment& b) { return a.address < b.address; });
  return out;
}

int64_t CachingAllocator::largest_free_block_bytes() const {
  int64_t largest = 0;
  for (const Pool& pool : pools_) {
    for (const FreeBlocks& free : pool.free) {
      if (!free.empty()) largest = std::max(largest, free.largest_bytes());
    }
  }
  return largest;
}

std::vector<uint32_t> CachingAllocator::restore(const std::vector<Segment>& segments) {
  std::vector<uint32_t> refs;
  const std::vector<uint32_t> ages = likely_ages(segments);
  newest_order_ = static_cast<uint32_t>(ages.size());
  size_t index = 0;
  struct OpenRange {
    uint32_t range;
    BlockRef last;
  };
  std::map<std::pair<uint32_t, StreamIndex>, OpenRange> open;  // (pool, stream) -> the range that may contain the next segment
  for (const Segment& segment : segments) {
    if (segment.pool != 0) private_pool(segment.pool).uses = 1;
    const uint32_t pool = segment.pool == 0 ? (segment.large ? kLargePool : kSmallPool)
                          : segment.large   ? private_pools_[segment.pool].large
                                            : private_pools_[segment.pool].small;
    driver_->adopt(segment.address, segment.size_bytes);
    BlockRef before = kNoBlock;
    BlockRef after = kNoBlock;
    uint32_t range = kNoBlock;
    const uint32_t age = ages[index++];
    uint32_t order = conf_.torch_minor < 12 ? 0 : age;
    if (segment.expandable) {
      const auto known = open.find({pool, segment.stream});
      const uint64_t end = segment.address + static_cast<uint64_t>(segment.size_bytes);
      if (known != open.end() &&
          end <= ranges_[known->second.range].address + static_cast<uint64_t>(ranges_[known->second.range].size_bytes)) {
        // The unmapped rest of its range becomes: unmapped, this segment, unmapped.
        range = known->second.range;
        before = known->second.last;
      } else {
        Range fresh = unplaced_range(pools_[pool].small, segment.size_bytes);
        fresh.address = segment.address;
        ranges_.push_back(fresh);
        range = static_cast<uint32_t>(ranges_.size() - 1);
        before = new_block(segment.stream, fresh.size_bytes, pool, fresh.address, order);
        blocks_[before].mapped = false;
        blocks_[before].range = range;
        insert_unmapped(before);
      }
      // `before` is the unmapped end of the range.
      const BlockRef hole = before;
      order = blocks_[hole].order;
      pools_[pool].unmapped[segment.stream].erase(blocks_[hole].address);
      const uint64_t hole_end = blocks_[hole].address + static_cast<uint64_t>(blocks_[hole].size_bytes);
      if (end < hole_end) {
        after = new_block(segment.stream, static_cast<int64_t>(hole_end - end), pool, end, blocks_[hole].order);
        blocks_[after].mapped = false;
        blocks_[after].range = range;
        insert_unmapped(after);
        open[{pool, segment.stream}] = {range, after};
      } else {
        open.erase({pool, segment.stream});
      }
      if (blocks_[hole].address < segment.address) {
        blocks_[hole].size_bytes = static_cast<int64_t>(segment.address - blocks_[hole].address);
        insert_unmapped(hole);
      } else {
        before = blocks_[hole].previous;
        drop_block(hole);
      }
    } else {
      ++stats_.segments;
    }
    reserve_more(segment.size_bytes);
    --stats_.segment_allocs;
    if (segment.pool != 0) ++private_pools_[segment.pool].segments;
    for (const SegmentBlock& recorded : segment.blocks) {
      const BlockRef block = new_block(segment.stream, recorded.size_bytes, pool, recorded.address, order);
      Block& b = blocks_[block];
      b.requested_bytes = recorded.requested_bytes;
      b.range = range;
      splice(block, before, kNoBlock);
      before = block;
      if (recorded.state == BlockState::inactive) {
        insert_free(block);
        refs.push_back(kNoBlock);
        continue;
      }
      stats_.active_bytes += b.size_bytes;
      stats_.requested_bytes += b.requested_bytes;
      if (recorded.state == BlockState::allocated) {
        b.allocated = true;
        stats_.allocated_bytes += b.size_bytes;
        stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
      } else {
        b.pending = 1;
        later_.emplace(next_ticket_, block);
        refs.push_back(next_ticket_++);
        continue;
      }
      refs.push_back(block);
    }
    if (after != kNoBlock) splice(after, before, kNoBlock);
  }
  return refs;
}

}  // namespace gpucast

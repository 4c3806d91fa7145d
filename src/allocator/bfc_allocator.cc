#include "src/allocator/bfc_allocator.h"

#include <algorithm>
#include <charconv>

namespace gpucast {
namespace {

int64_t round_up(int64_t size_bytes) {
  return (size_bytes + BfcAllocator::kRoundBytes - 1) / BfcAllocator::kRoundBytes * BfcAllocator::kRoundBytes;
}

int64_t doubled(int64_t size_bytes) {
  constexpr int64_t kEnough = int64_t{1} << 60;  // more than any limit: from there on only the limit counts
  return std::min(2 * size_bytes, kEnough);
}

bool read(std::string_view text, bool* value) {
  *value = text == "True" || text == "true";
  return *value || text == "False" || text == "false";
}

bool read(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 0 && *value <= 1;
}

}  // namespace

std::optional<BfcConf> parse_bfc_conf(std::string_view text) {
  BfcConf conf;
  bool chosen = false;
  std::string compact;
  for (const char c : text) {
    if (c != ' ' && c != '\t') compact += c;
  }
  for (size_t begin = 0; begin < compact.size();) {
    const size_t end = std::min(compact.find(',', begin), compact.size());
    const std::string_view setting = std::string_view(compact).substr(begin, end - begin);
    begin = end + 1;
    if (setting.empty()) continue;
    const size_t colon = setting.find(':');
    const std::string_view key = setting.substr(0, colon);
    const std::string_view value = colon == std::string_view::npos ? "" : setting.substr(colon + 1);
    BfcConf changed = conf;
    bool understood = false;
    if (key == "backend") chosen = understood = value == "bfc";
    if (key == "allow_growth") understood = read(value, &changed.allow_growth);
    if (key == "garbage_collection") understood = read(value, &changed.garbage_collection);
    if (key == "coalesce_regions") understood = read(value, &changed.coalesce_regions);
    if (key == "fragmentation_fraction") understood = read(value, &changed.fragmentation_fraction);
    if (key == "per_process_memory_fraction") understood = read(value, &changed.per_process_memory_fraction);
    if (understood) {
      conf = std::move(changed);
    } else {
      conf.unknown.emplace_back(setting);
    }
  }
  if (!chosen) return std::nullopt;
  return conf;
}

BfcAllocator::BfcAllocator(const BfcConf& conf, size_t stream_count, Driver* driver) : conf_(conf), driver_(driver), held_(stream_count) {
  BfcAllocator::set_memory_fraction(conf_.per_process_memory_fraction);
  const int64_t first_bytes = conf_.allow_growth ? std::min(limit_bytes_, kFirstRegionBytes) : limit_bytes_;
  next_region_bytes_ = std::max(round_up(first_bytes), kRoundBytes);
  max_fragmentation_bytes_ = conf_.fragmentation_fraction > 0
                                 ? static_cast<int64_t>(conf_.fragmentation_fraction * static_cast<double>(limit_bytes_))
                                 : kMaxFragmentationBytes;
}

void BfcAllocator::set_memory_fraction(double fraction) {
  conf_.per_process_memory_fraction = fraction;
  limit_bytes_ = static_cast<int64_t>(fraction * static_cast<double>(driver_->total_bytes()));
}

// ---- allocation -------------------------------------------------------------------------------------------------------------

BlockRef BfcAllocator::new_chunk(uint64_t address, int64_t size_bytes) {
  BlockRef chunk = 0;
  if (unused_.empty()) {
    chunk = static_cast<BlockRef>(chunks_.size());
    chunks_.emplace_back();
  } else {
    chunk = unused_.back();
    unused_.pop_back();
    chunks_[chunk] = Chunk{};
  }
  chunks_[chunk].address = address;
  chunks_[chunk].size_bytes = size_bytes;
  return chunk;
}

BlockRef BfcAllocator::allocate(int64_t size_bytes, StreamIndex stream) {
  const int64_t rounded_bytes = round_up(size_bytes);
  BlockRef block = try_allocate(rounded_bytes, stream);
  // TensorFlow waits up to ten seconds, and tries again whenever memory becomes free.
  while (block == kNoBlock && !waiting_.empty()) {
    ++stats_.alloc_retries;
    complete(static_cast<uint32_t>(waiting_.begin()->first));
    block = try_allocate(rounded_bytes, stream);
  }
  if (block == kNoBlock) {
    note_out_of_memory(rounded_bytes, stream);
    return kNoBlock;
  }
  Chunk& c = chunks_[block];
  c.in_use = true;
  c.requested_bytes = size_bytes;
  c.stream = stream;
  record(EventKind::alloc, c.address, size_bytes, stream);
  stats_.allocated_bytes += c.size_bytes;
  stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
  stats_.active_bytes += c.size_bytes;
  stats_.requested_bytes += size_bytes;
  return block;
}

BlockRef BfcAllocator::try_allocate(int64_t rounded_bytes, StreamIndex stream) {
  BlockRef block = take_chunk(rounded_bytes);
  if (block == kNoBlock && extend(rounded_bytes, stream)) block = take_chunk(rounded_bytes);
  if (block == kNoBlock && conf_.garbage_collection && release_regions(rounded_bytes)) {
    ++stats_.alloc_retries;
    if (extend(rounded_bytes, stream)) block = take_chunk(rounded_bytes);
  }
  return block;
}

// The smallest free chunk that is large enough, and the lowest address among equal ones. TensorFlow keeps free chunks in bins by powers of
// two. Each bin is ordered by (size, address), and all chunks of a later bin are larger, so one ordered list gives the same result.
BlockRef BfcAllocator::take_chunk(int64_t rounded_bytes) {
  const FreeBlocks::Position at = free_.lower_bound(rounded_bytes);
  if (free_.at_end(at)) return kNoBlock;
  const BlockRef chunk = free_[at].block;
  free_.erase(at);
  const int64_t rest_bytes = chunks_[chunk].size_bytes - rounded_bytes;
  if (rest_bytes < rounded_bytes && rest_bytes < max_fragmentation_bytes_) return chunk;
  if (rest_bytes == 0) return chunk;  // a fragmentation_fraction of less than a byte
  const BlockRef rest = new_chunk(chunks_[chunk].address + static_cast<uint64_t>(rounded_bytes), rest_bytes);
  const BlockRef after = chunks_[chunk].next;
  chunks_[chunk].size_bytes = rounded_bytes;
  chunks_[chunk].next = rest;
  chunks_[rest].previous = chunk;
  chunks_[rest].next = after;
  if (after != kNoBlock) chunks_[after].previous = rest;
  insert_free(rest);
  return chunk;
}

// Gets a region from the driver: twice the size of the last one, and larger if the request needs it. If the driver has no more, the size
// shrinks in steps of a tenth.
bool BfcAllocator::extend(int64_t rounded_bytes, StreamIndex stream) {
  const int64_t available_bytes = std::max<int64_t>(limit_bytes_ - stats_.reserved_bytes, 0) / kRoundBytes * kRoundBytes;
  if (rounded_bytes > available_bytes) return false;
  bool grown = false;
  for (; rounded_bytes > next_region_bytes_; grown = true) next_region_bytes_ = doubled(next_region_bytes_);
  int64_t bytes = std::min(next_region_bytes_, available_bytes);
  std::optional<uint64_t> address = driver_->allocate(bytes);
  while (!address) {
    // In single precision, as TensorFlow computes it: this rounds large sizes to 24 bits.
    const int64_t less_bytes = round_up(static_cast<int64_t>(static_cast<float>(bytes) * 0.9F));
    bytes = std::min(less_bytes, bytes - kRoundBytes);
    if (bytes < rounded_bytes) return false;
    address = driver_->allocate(bytes);
  }
  if (!grown) next_region_bytes_ = doubled(next_region_bytes_);

  const BlockRef chunk = new_chunk(*address, bytes);
  auto before = regions_.lower_bound(*address);
  const bool behind =
      before != regions_.begin() && std::prev(before)->first + static_cast<uint64_t>(std::prev(before)->second.size_bytes) == *address;
  if (conf_.coalesce_regions && behind) {
    Region& region = std::prev(before)->second;
    region.size_bytes += bytes;
    region.parts.emplace_back(*address, bytes);
    BlockRef last = region.first;
    while (chunks_[last].next != kNoBlock) last = chunks_[last].next;
    chunks_[last].next = chunk;
    chunks_[chunk].previous = last;
  } else {
    regions_.emplace(*address, Region{bytes, chunk, stream, {{*address, bytes}}});
    ++stats_.segments;
  }
  stats_.reserved_bytes += bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  ++stats_.segment_allocs;
  record(EventKind::segment_alloc, *address, bytes, stream);
  const BlockRef previous = chunks_[chunk].previous;
  const bool merges = previous != kNoBlock && !chunks_[previous].in_use && chunks_[previous].waits == kNotWaiting;
  if (merges) erase_free(previous);
  insert_free(merges ? swallow_next(previous) : chunk);
  return true;
}

// Garbage collection: returns unused regions to the driver, if the request could fit after that.
bool BfcAllocator::release_regions(int64_t rounded_bytes) {
  const auto unused = [&](const Region& region) {
    for (BlockRef chunk = region.first; chunk != kNoBlock; chunk = chunks_[chunk].next) {
      if (chunks_[chunk].in_use || chunks_[chunk].waits != kNotWaiting) return false;
    }
    return true;
  };
  int64_t releasable_bytes = 0;
  for (const auto& [address, region] : regions_) {
    if (unused(region)) releasable_bytes += region.size_bytes;
  }
  if (releasable_bytes == 0 || rounded_bytes > limit_bytes_ - stats_.reserved_bytes + releasable_bytes) return false;
  for (auto it = regions_.begin(); it != regions_.end();) {
    const Region& region = it->second;
    if (!unused(region)) {
      ++it;
      continue;
    }
    for (BlockRef chunk = region.first; chunk != kNoBlock;) {
      erase_free(chunk);
      unused_.push_back(chunk);
      chunk = chunks_[chunk].next;
    }
    for (const auto& [address, bytes] : region.parts) {
      record(EventKind::segment_free, address, bytes, region.stream);
      driver_->free(address, bytes);
      ++stats_.segment_frees;
    }
    stats_.reserved_bytes -= region.size_bytes;
    --stats_.segments;
    it = regions_.erase(it);
  }
  return true;
}

void BfcAllocator::note_out_of_memory(int64_t rounded_bytes, StreamIndex stream) {
  out_of_memory_ = {};
  out_of_memory_.requested_bytes = rounded_bytes;
  out_of_memory_.device_free_bytes = driver_->free_bytes();
  out_of_memory_.device_total_bytes = driver_->total_bytes();
  out_of_memory_.allocated_bytes = stats_.allocated_bytes;
  out_of_memory_.unallocated_bytes = stats_.reserved_bytes - stats_.allocated_bytes;
  if (conf_.per_process_memory_fraction < 1) out_of_memory_.allowed_bytes = limit_bytes_;
  ++stats_.ooms;
  record(EventKind::oom, static_cast<uint64_t>(driver_->free_bytes()), rounded_bytes, stream);
}

void BfcAllocator::empty_cache() {
  if (conf_.garbage_collection) release_regions(0);
}

// ---- freeing ----------------------------------------------------------------------------------------------------------------

void BfcAllocator::start_free(BlockRef block) {
  Chunk& c = chunks_[block];
  c.in_use = false;
  stats_.allocated_bytes -= c.size_bytes;
  record(EventKind::free_requested, c.address, c.requested_bytes, c.stream);
}

void BfcAllocator::wait(BlockRef block, std::vector<StreamIndex> streams) {
  chunks_[block].waits = next_waiting_;
  waiting_.emplace(next_waiting_++, Waiting{block, std::move(streams)});
}

void BfcAllocator::free(BlockRef block) {
  start_free(block);
  std::vector<StreamIndex> busy;
  if (const auto uses = stream_uses_.find(block); uses != stream_uses_.end()) {
    std::copy_if(uses->second.begin(), uses->second.end(), std::back_inserter(busy), [&](StreamIndex stream) { return held_[stream]; });
    stream_uses_.erase(uses);
  }
  if (busy.empty()) {
    make_free(block);
  } else {
    wait(block, std::move(busy));
  }
}

uint32_t BfcAllocator::free_later(BlockRef block) {
  stream_uses_.erase(block);
  start_free(block);
  const auto ticket = static_cast<uint32_t>(next_waiting_);
  wait(block, {});
  return ticket;
}

void BfcAllocator::complete(uint32_t ticket) {
  const auto it = waiting_.find(ticket);
  if (it == waiting_.end()) return;  // completed already, to avoid out of memory
  const BlockRef block = it->second.chunk;
  waiting_.erase(it);
  make_free(block);
}

void BfcAllocator::record_stream(BlockRef block, StreamIndex stream) {
  if (stream == chunks_[block].stream) return;
  std::vector<StreamIndex>& uses = stream_uses_[block];
  if (std::find(uses.begin(), uses.end(), stream) == uses.end()) uses.push_back(stream);
}

void BfcAllocator::finish_stream(StreamIndex stream) {
  held_[stream] = false;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::vector<StreamIndex>& streams = it->second.streams;
    const bool done = std::erase(streams, stream) > 0 && streams.empty();
    const BlockRef chunk = it->second.chunk;
    it = done ? waiting_.erase(it) : std::next(it);
    if (done) make_free(chunk);
  }
}

BlockRef BfcAllocator::swallow_next(BlockRef chunk) {
  const BlockRef next = chunks_[chunk].next;
  chunks_[chunk].size_bytes += chunks_[next].size_bytes;
  chunks_[chunk].next = chunks_[next].next;
  if (chunks_[chunk].next != kNoBlock) chunks_[chunks_[chunk].next].previous = chunk;
  unused_.push_back(next);
  return chunk;
}

void BfcAllocator::make_free(BlockRef block) {
  Chunk& c = chunks_[block];
  c.waits = kNotWaiting;
  record(EventKind::free_completed, c.address, c.requested_bytes, c.stream);
  stats_.active_bytes -= c.size_bytes;
  stats_.requested_bytes -= c.requested_bytes;
  const auto is_free = [&](BlockRef chunk) { return chunk != kNoBlock && !chunks_[chunk].in_use && chunks_[chunk].waits == kNotWaiting; };
  if (is_free(c.next)) {
    erase_free(c.next);
    swallow_next(block);
  }
  if (is_free(c.previous)) {
    erase_free(c.previous);
    block = swallow_next(c.previous);
  }
  insert_free(block);
}

// ---- Inspection -------------------------------------------------------------------------------------------------------------

std::vector<Segment> BfcAllocator::segments() const {
  std::vector<Segment> out;
  for (const auto& [address, region] : regions_) {
    Segment segment;
    segment.address = address;
    segment.size_bytes = region.size_bytes;
    segment.stream = region.stream;
    segment.large = true;
    for (BlockRef chunk = region.first; chunk != kNoBlock; chunk = chunks_[chunk].next) {
      const Chunk& c = chunks_[chunk];
      segment.blocks.push_back({c.address, c.size_bytes, c.requested_bytes,
                                c.in_use                 ? BlockState::allocated
                                : c.waits != kNotWaiting ? BlockState::pending_free
                                                         : BlockState::inactive});
    }
    out.push_back(std::move(segment));
  }
  return out;
}

std::vector<uint32_t> BfcAllocator::restore(const std::vector<Segment>& segments) {
  std::vector<uint32_t> refs;
  for (const Segment& segment : segments) {
    for (const SegmentBlock& block : segment.blocks) {
      BlockRef ref = kNoBlock;
      if (block.state != BlockState::inactive) ref = allocate(std::max<int64_t>(block.requested_bytes, 1), segment.stream);
      refs.push_back(ref != kNoBlock && block.state == BlockState::pending_free ? free_later(ref) : ref);
    }
  }
  return refs;
}

}  // namespace gpucast

// An allocator of device memory as a pure state machine: no I/O, no clock, no globals. PyTorch's CUDACachingAllocator is
// one (caching_allocator.h), TensorFlow's BFC another (bfc_allocator.h); replay works with any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/event_kind.h"

namespace gpucast {

using StreamIndex = uint16_t;  // a stream's place in the history's list of streams
using BlockRef = uint32_t;     // a block in use, from allocate() to free()
inline constexpr BlockRef kNoBlock = UINT32_MAX;

// One thing the allocator did, as a line of PyTorch's memory history.
struct AllocatorAction {
  EventKind kind = EventKind::alloc;
  StreamIndex stream = 0;
  uint64_t address = 0;    // oom: device memory that was free, in bytes
  int64_t size_bytes = 0;  // alloc, free: as requested; segments: theirs; oom: the request after rounding
  friend bool operator==(const AllocatorAction&, const AllocatorAction&) = default;
};

// What PyTorch's message says when memory is out.
struct OutOfMemory {
  int64_t requested_bytes = 0;           // what it tried to get from the driver ("Tried to allocate")
  int64_t device_free_bytes = 0;         // "of which ... is free"
  int64_t device_total_bytes = 0;        // "has a total capacity of"
  int64_t allocated_bytes = 0;           // "is allocated by PyTorch"
  int64_t unallocated_bytes = 0;         // "is reserved by PyTorch but unallocated"
  int64_t private_pool_bytes = 0;        // "allocated in private pools"
  std::optional<int64_t> allowed_bytes;  // "allowed", when a memory fraction is set
};

struct AllocatorStats {
  int64_t allocated_bytes = 0;  // blocks in use, after rounding
  int64_t reserved_bytes = 0;   // segments, what the card loses
  int64_t active_bytes = 0;     // in use, or freed and still used by another stream
  int64_t requested_bytes = 0;  // the active blocks' requests, before rounding
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  int64_t segments = 0;                           // now; an expandable segment's mapped ranges are not counted
  int64_t segment_allocs = 0, segment_frees = 0;  // maps and unmaps count too
  int64_t alloc_retries = 0, ooms = 0;
};

enum class BlockState : uint8_t { allocated, pending_free, inactive };

struct SegmentBlock {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;  // of a free block: of what it held last
  BlockState state = BlockState::inactive;
  friend bool operator==(const SegmentBlock&, const SegmentBlock&) = default;
};

// A segment as a memory snapshot shows it; of an expandable one each mapped range.
struct Segment {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  StreamIndex stream = 0;
  bool large = false, expandable = false;
  uint32_t pool = 0;                 // private pool, 0: none
  std::vector<SegmentBlock> blocks;  // tile the segment
};

class Allocator {
 public:
  virtual ~Allocator() = default;

  // A block of at least `size_bytes` (> 0); kNoBlock: out of memory, and out_of_memory() says how.
  virtual BlockRef allocate(int64_t size_bytes, StreamIndex stream) = 0;
  virtual void free(BlockRef block) = 0;

  // free() of a block that another stream still uses. It becomes free by complete() with the ticket that is returned, or
  // earlier, when the allocator waits for the device; then complete() does nothing.
  virtual uint32_t free_later(BlockRef block) = 0;
  virtual void complete(uint32_t ticket) = 0;

  // The same as CUDA sees it: the block is used on `stream` too, so free() waits for the work that was submitted there by then.
  // Between hold_stream and finish_stream submitted work does not finish, else at once.
  virtual void record_stream(BlockRef block, StreamIndex stream) = 0;
  virtual void hold_stream(StreamIndex stream) = 0;
  virtual void finish_stream(StreamIndex stream) = 0;

  virtual void empty_cache() = 0;
  virtual void set_memory_fraction(double fraction) = 0;

  // Allocations between begin and end come from private pool `pool` (> 0); of `stream` only, or of every stream when unset.
  virtual void begin_pool(uint32_t pool, std::optional<StreamIndex> stream) = 0;
  virtual void end_pool(uint32_t pool) = 0;
  virtual void release_pool(uint32_t pool) = 0;

  // Puts there what a snapshot shows, before the first call: for histories that begin in the middle. Returns of each
  // block, segment by segment, its ref, for free ones kNoBlock, for those that wait for a stream the ticket for complete().
  virtual std::vector<uint32_t> restore(const std::vector<Segment>& segments) = 0;

  virtual uint64_t address(BlockRef block) const = 0;
  virtual int64_t size_bytes(BlockRef block) const = 0;
  virtual std::vector<Segment> segments() const = 0;     // by address
  virtual int64_t largest_free_block_bytes() const = 0;  // of what is reserved
  const AllocatorStats& stats() const { return stats_; }
  const OutOfMemory& out_of_memory() const { return out_of_memory_; }  // of the last allocation that failed

  // Every action from here on is appended to `actions` (not owned; null: none).
  void record_actions(std::vector<AllocatorAction>* actions) { actions_ = actions; }

 protected:
  void record(EventKind kind, uint64_t address, int64_t size_bytes, StreamIndex stream) {
    if (actions_ != nullptr) actions_->push_back({kind, stream, address, size_bytes});
  }
  AllocatorStats stats_;
  OutOfMemory out_of_memory_;
  std::vector<AllocatorAction>* actions_ = nullptr;
};

}  // namespace gpucast

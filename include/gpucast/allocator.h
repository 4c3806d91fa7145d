// An allocator of device memory as a pure state machine: no I/O, no clock, no globals. Two implement it: PyTorch's CUDACachingAllocator
// (caching_allocator.h) and TensorFlow's BFC (bfc_allocator.h). Replay works with both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/event_kind.h"

namespace gpucast {

using StreamIndex = uint16_t;                             // index in the history's list of streams
constexpr StreamIndex kCapturedStreams = UINT16_MAX - 1;  // of begin_pool: all but the default stream, which no CUDA graph captures
using BlockRef = uint32_t;                                // a block in use, from allocate() to free()
inline constexpr BlockRef kNoBlock = UINT32_MAX;

// One action of the allocator, as a line of PyTorch's memory history.
struct AllocatorAction {
  EventKind kind = EventKind::alloc;
  StreamIndex stream = 0;
  uint64_t address = 0;    // oom: free device memory, in bytes
  int64_t size_bytes = 0;  // alloc, free: the requested size; segments: the segment's; oom: the request after rounding
  friend bool operator==(const AllocatorAction&, const AllocatorAction&) = default;
};

// The figures of PyTorch's message when memory is out.
struct OutOfMemory {
  int64_t requested_bytes = 0;           // the size requested from the driver ("Tried to allocate")
  int64_t device_free_bytes = 0;         // "of which ... is free"
  int64_t device_total_bytes = 0;        // "has a total capacity of"
  int64_t allocated_bytes = 0;           // "is allocated by PyTorch"
  int64_t unallocated_bytes = 0;         // "is reserved by PyTorch but unallocated"
  int64_t private_pool_bytes = 0;        // "allocated in private pools"
  std::optional<int64_t> allowed_bytes;  // "allowed", if a memory fraction is set
};

struct AllocatorStats {
  int64_t allocated_bytes = 0;  // blocks in use, after rounding
  int64_t reserved_bytes = 0;   // in segments: what the card loses
  int64_t active_bytes = 0;     // in use, or freed but still used by another stream
  int64_t requested_bytes = 0;  // requests of the active blocks, before rounding
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  int64_t segments = 0;                           // number now; an expandable segment's mapped ranges are not counted
  int64_t segment_allocs = 0, segment_frees = 0;  // maps and unmaps count too
  int64_t alloc_retries = 0, ooms = 0;
};

enum class BlockState : uint8_t { allocated, pending_free, inactive };

struct SegmentBlock {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;  // a free block: the request that it held last
  BlockState state = BlockState::inactive;
  friend bool operator==(const SegmentBlock&, const SegmentBlock&) = default;
};

// A segment as a memory snapshot shows it. An expandable segment gives one for each mapped range.
struct Segment {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  StreamIndex stream = 0;
  bool large = false, expandable = false;
  uint32_t pool = 0;                 // private pool, 0: none
  std::vector<SegmentBlock> blocks;  // they cover the segment without gaps
};

class Allocator {
 public:
  virtual ~Allocator() = default;

  // Returns a block of at least `size_bytes` (> 0). kNoBlock: out of memory; out_of_memory() has the figures.
  virtual BlockRef allocate(int64_t size_bytes, StreamIndex stream) = 0;
  virtual void free(BlockRef block) = 0;

  // Frees a block that another stream still uses. It becomes free at complete() with the returned ticket, or earlier if the allocator waits
  // for the device; then complete() does nothing.
  virtual uint32_t free_later(BlockRef block) = 0;
  virtual void complete(uint32_t ticket) = 0;

  // The same in CUDA's form. The block is also used on `stream`, so free() waits for the work submitted there so far. Between hold_stream
  // and finish_stream, submitted work does not finish; otherwise it finishes at once.
  virtual void record_stream(BlockRef block, StreamIndex stream) = 0;
  virtual void hold_stream(StreamIndex stream) = 0;
  virtual void finish_stream(StreamIndex stream) = 0;

  virtual void empty_cache() = 0;
  virtual void set_memory_fraction(double fraction) = 0;

  // Allocations between begin and end come from private pool `pool` (> 0), for `stream` only (or kCapturedStreams), or for all streams if
  // it is unset.
  virtual void begin_pool(uint32_t pool, std::optional<StreamIndex> stream) = 0;
  virtual void end_pool(uint32_t pool) = 0;
  virtual void release_pool(uint32_t pool) = 0;

  // For histories that begin in the middle: restores the state of a snapshot, before the first call. Returns a number for each block,
  // segment by segment: its ref, kNoBlock for a free block, or the ticket for complete() if it waits for a stream.
  virtual std::vector<uint32_t> restore(const std::vector<Segment>& segments) = 0;

  virtual uint64_t address(BlockRef block) const = 0;
  virtual int64_t size_bytes(BlockRef block) const = 0;
  virtual std::vector<Segment> segments() const = 0;     // ordered by address
  virtual int64_t largest_free_block_bytes() const = 0;  // of the reserved memory
  const AllocatorStats& stats() const { return stats_; }
  const OutOfMemory& out_of_memory() const { return out_of_memory_; }  // for the last failed allocation

  // From here on, appends every action to `actions` (not owned; null: to nothing).
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

// PyTorch's CUDACachingAllocator (c10/cuda/CUDACachingAllocator.cpp), step by step: the same blocks, addresses, history and counters after
// every call. docs/explanation/allocator.md describes its behaviour. AllocConf::torch_minor selects between releases that differ.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gpucast/allocator.h"
#include "src/allocator/driver.h"
#include "src/allocator/free_blocks.h"
#include "src/allocator/stream_table.h"
#include "src/base/alloc_conf.h"

namespace gpucast {

class CachingAllocator final : public Allocator {
 public:
  // `streams[i]`: CUDA's handle of stream i (its cudaStream_t), which gives the order among streams.
  // `stream_ids[i]`: PyTorch's id of stream i (torch.cuda.Stream.stream_id); unset: the value in `streams`.
  struct Streams {
    std::vector<uint64_t> handles;
    std::vector<uint64_t> ids;
  };

  // `driver` is not owned.
  CachingAllocator(const AllocConf& conf, Streams streams, Driver* driver);
  ~CachingAllocator() override;

  BlockRef allocate(int64_t size_bytes, StreamIndex stream) override;
  void free(BlockRef block) override;
  uint32_t free_later(BlockRef block) override;
  void complete(uint32_t ticket) override;
  void record_stream(BlockRef block, StreamIndex stream) override;
  void hold_stream(StreamIndex stream) override;
  void finish_stream(StreamIndex stream) override;
  void empty_cache() override;
  void set_memory_fraction(double fraction) override;
  void begin_pool(uint32_t pool, std::optional<StreamIndex> stream) override;
  void end_pool(uint32_t pool) override;
  void release_pool(uint32_t pool) override;
  uint64_t address(BlockRef block) const override { return blocks_[block].address; }
  int64_t size_bytes(BlockRef block) const override { return blocks_[block].size_bytes; }
  std::vector<Segment> segments() const override;
  int64_t largest_free_block_bytes() const override;

  // For histories that begin in the middle: restores the segments of a snapshot, before the first call. Returns the refs of their blocks
  // (kNoBlock for free ones), segment by segment, block by block.
  std::vector<uint32_t> restore(const std::vector<Segment>& segments) override;

 private:
  struct Block {
    uint64_t address = 0;
    int64_t size_bytes = 0;
    int64_t requested_bytes = 0;
    int64_t age_base = 0;  // the pool's search count when it became free
    BlockRef previous = kNoBlock, next = kNoBlock;
    uint32_t pool = 0;          // index in pools_
    uint32_t order = 0;         // the age of its segment
    uint32_t range = kNoBlock;  // index in ranges_, expandable segments only
    int32_t pending = 0;        // number of streams whose work it waits for
    StreamIndex stream = 0;
    bool allocated = false, mapped = true, used_by_streams = false;
  };
  // Blocks of one size class, of a private pool or of none. Free blocks are kept by stream.
  struct Pool {
    bool small = false;
    uint32_t owner = 0;  // the private pool, 0: none
    int64_t searches = 0;
    std::vector<FreeBlocks> free;                        // by stream
    std::vector<std::map<uint64_t, BlockRef>> unmapped;  // by stream, address -> block; expandable segments
  };
  struct PrivatePool {
    uint32_t small = 0, large = 0;  // indices in pools_
    int uses = 0;
    int64_t segments = 0;
    uint32_t index = 0;  // index in pool_numbers_
  };
  // The addresses of one expandable segment.
  struct Range {
    uint64_t address = 0;
    int64_t size_bytes = 0, step_bytes = 0;
    uint64_t round_down(uint64_t at) const { return address + (at - address) / step() * step(); }
    uint64_t round_up(uint64_t at) const { return address + (at - address + step() - 1) / step() * step(); }
    uint64_t step() const { return static_cast<uint64_t>(step_bytes); }
  };
  struct Request {
    int64_t size_bytes = 0, segment_bytes = 0;
    StreamIndex stream = 0;
    uint32_t pool = 0;
  };
  // Work on a stream, and the block that waits for it.
  struct Pending {
    BlockRef block = 0;
    bool done = false;
  };

  BlockRef new_block(StreamIndex stream, int64_t size_bytes, uint32_t pool, uint64_t address, uint32_t order);
  uint32_t next_order();
  void drop_block(BlockRef block) { unused_.push_back(block); }
  bool is_split(const Block& block) const { return block.previous != kNoBlock || block.next != kNoBlock; }
  bool can_use(BlockRef block) const {
    if (block == kNoBlock) return false;
    const Block& b = blocks_[block];
    return !b.allocated && b.pending == 0 && !b.used_by_streams;
  }
  bool collects_garbage() const { return allowed_bytes_.has_value() && conf_.garbage_collection_threshold > 0; }
  void reserve_more(int64_t size_bytes);
  void insert_free(BlockRef block);
  void erase_free(BlockRef block);
  void insert_unmapped(BlockRef block);
  void splice(BlockRef block, BlockRef before, BlockRef after);
  int64_t merge(BlockRef into, BlockRef from);

  uint32_t pool_for(int64_t size_bytes, StreamIndex stream) const;
  uint32_t add_pool(bool small, uint32_t owner);
  PrivatePool& private_pool(uint32_t number);  // makes it if it is new
  int64_t segment_size(int64_t size_bytes) const;

  BlockRef find_free(const Request& request);
  BlockRef new_segment(const Request& request);
  BlockRef new_expandable(const Request& request);
  BlockRef find_expandable(const Request& request);
  Range unplaced_range(bool small, int64_t least_bytes = 0) const;
  bool map_block(BlockRef block, int64_t size_bytes);
  void unmap_block(BlockRef block);
  void collect_garbage();
  bool release_oversize(const Request& request);
  void release_cached();
  void release_free_blocks(uint32_t pool);
  void release_block(BlockRef block);
  BlockRef hand_out(BlockRef block, int64_t requested_bytes, const Request& request);
  void note_out_of_memory(const Request& request);
  void fill_out_of_memory(const Request& request);
  void finish_submitted_work();
  bool is_rejected(const Request& request) const;

  void start_free(BlockRef block);
  void make_free(BlockRef block);
  void wait_for_streams(BlockRef block);
  void insert_deferred_events();
  void process_events();
  void synchronize_events();
  // Up to 2.12 a private pool that is begun counts as the capture of a CUDA graph. Later releases look at the stream itself; histories do
  // not show whether a pool belongs to a capture.
  bool capturing() const { return conf_.torch_minor < 13 && !begun_pools_.empty(); }

  AllocConf conf_;
  Streams streams_;
  std::vector<uint64_t> stream_hashes_;
  std::vector<StreamIndex> stream_order_;  // ordered by handle
  Driver* driver_;

  std::vector<Block> blocks_;
  std::vector<BlockRef> unused_;
  std::vector<Pool> pools_;  // 0: large, 1: small, then the private pools' ones
  std::vector<Range> ranges_;
  std::unordered_map<BlockRef, StreamTable> stream_uses_;   // blocks with used_by_streams
  std::unordered_map<BlockRef, StreamTable> capture_uses_;  // streams recorded while a pool was begun

  StreamTable event_streams_;
  std::vector<std::deque<Pending>> events_;  // by stream
  std::vector<bool> held_;                   // by stream
  std::vector<BlockRef> freed_in_capture_;   // they wait for events until no pool is begun
  std::map<uint32_t, BlockRef> later_;       // free_later(), by ticket
  uint32_t next_ticket_ = 0;

  struct Begun {
    uint32_t pool;
    std::optional<StreamIndex> stream;
  };
  std::vector<Begun> begun_pools_;
  std::map<uint32_t, PrivatePool> private_pools_;
  std::vector<uint32_t> pool_numbers_;
  std::vector<uint64_t> pool_hashes_;
  StreamTable releasable_pools_;  // by index, in the order of PyTorch's table

  std::optional<int64_t> allowed_bytes_;
  uint32_t newest_order_ = 0;
  bool rejected_ = false;  // throw_on_cudamalloc_oom rejected the new segment
};

}  // namespace gpucast

// TensorFlow's BFC allocator ("best fit with coalescing", xla/tsl/framework/bfc_allocator.cc), as its GPU devices use it. It shows the
// memory of a history under another allocator than PyTorch's. Its rules: docs/explanation/other-allocators.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpucast/allocator.h"
#include "src/allocator/driver.h"
#include "src/allocator/free_blocks.h"

namespace gpucast {

struct BfcConf {
  bool allow_growth = true;           // false: all memory at the first allocation
  bool garbage_collection = true;     // returns unused regions to the driver before out of memory
  bool coalesce_regions = false;      // a region directly after another one extends it
  double fragmentation_fraction = 0;  // of all memory: the limit on a chunk's extra size beyond the request; 0: 128 MiB
  double per_process_memory_fraction = 1;
  std::vector<std::string> unknown;  // unknown settings, for a warning
};

// Reads "backend:bfc" or "backend:bfc,allow_growth:False,..."; nothing if the settings name another backend.
std::optional<BfcConf> parse_bfc_conf(std::string_view text);

class BfcAllocator : public Allocator {
 public:
  static constexpr int64_t kRoundBytes = 256;
  static constexpr int64_t kFirstRegionBytes = 2 << 20;         // with allow_growth
  static constexpr int64_t kMaxFragmentationBytes = 128 << 20;  // without fragmentation_fraction

  // `driver` is not owned.
  BfcAllocator(const BfcConf& conf, size_t stream_count, Driver* driver);

  BlockRef allocate(int64_t size_bytes, StreamIndex stream) override;
  void free(BlockRef block) override;
  uint32_t free_later(BlockRef block) override;
  void complete(uint32_t ticket) override;
  void record_stream(BlockRef block, StreamIndex stream) override;
  void hold_stream(StreamIndex stream) override { held_[stream] = true; }
  void finish_stream(StreamIndex stream) override;
  void empty_cache() override;  // TensorFlow has no such call: the same as its garbage collection
  void set_memory_fraction(double fraction) override;
  // BFC has no private pools: all blocks come from the same regions.
  void begin_pool(uint32_t, std::optional<StreamIndex>) override {}
  void end_pool(uint32_t) override {}
  void release_pool(uint32_t) override {}
  uint64_t address(BlockRef block) const override { return chunks_[block].address; }
  int64_t size_bytes(BlockRef block) const override { return chunks_[block].size_bytes; }
  std::vector<Segment> segments() const override;
  int64_t largest_free_block_bytes() const override { return free_.empty() ? 0 : free_.largest_bytes(); }
  // BFC would not have made another allocator's segments: it allocates their used blocks one after the other.
  std::vector<uint32_t> restore(const std::vector<Segment>& segments) override;

 private:
  struct Chunk {
    uint64_t address = 0;
    int64_t size_bytes = 0;
    int64_t requested_bytes = 0;
    BlockRef previous = kNoBlock, next = kNoBlock;  // neighbours in the region
    StreamIndex stream = 0;
    bool in_use = false;
    int64_t waits = kNotWaiting;  // its key in waiting_
  };
  static constexpr int64_t kNotWaiting = -1;
  // Memory that the driver gave in one piece, or in several consecutive ones.
  struct Region {
    int64_t size_bytes = 0;
    BlockRef first = kNoBlock;
    StreamIndex stream = 0;  // the stream of the allocation that it was made for
    std::vector<std::pair<uint64_t, int64_t>> parts;
  };
  // A freed chunk that other streams still use, or that waits for complete().
  struct Waiting {
    BlockRef chunk = kNoBlock;
    std::vector<StreamIndex> streams;
  };

  BlockRef new_chunk(uint64_t address, int64_t size_bytes);
  void insert_free(BlockRef chunk) { free_.insert({chunks_[chunk].size_bytes, chunks_[chunk].address, 0, chunk}); }
  void erase_free(BlockRef chunk) { free_.erase(chunks_[chunk].size_bytes, 0, chunks_[chunk].address); }
  BlockRef try_allocate(int64_t rounded_bytes, StreamIndex stream);
  BlockRef take_chunk(int64_t rounded_bytes);
  bool extend(int64_t rounded_bytes, StreamIndex stream);
  bool release_regions(int64_t rounded_bytes);
  void start_free(BlockRef block);
  void wait(BlockRef block, std::vector<StreamIndex> streams);
  void make_free(BlockRef block);
  BlockRef swallow_next(BlockRef chunk);
  void note_out_of_memory(int64_t rounded_bytes, StreamIndex stream);

  BfcConf conf_;
  Driver* driver_;
  int64_t limit_bytes_ = 0;  // the limit on the sum of all regions
  int64_t next_region_bytes_ = 0;
  int64_t max_fragmentation_bytes_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<BlockRef> unused_;
  FreeBlocks free_;
  std::map<uint64_t, Region> regions_;  // ordered by address
  std::vector<bool> held_;              // by stream
  std::unordered_map<BlockRef, std::vector<StreamIndex>> stream_uses_;
  std::map<int64_t, Waiting> waiting_;  // in the order of the calls to free
  int64_t next_waiting_ = 0;
};

}  // namespace gpucast

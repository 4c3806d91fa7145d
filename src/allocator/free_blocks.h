// Free blocks of one pool and stream, ordered by (size, age of the segment, address), for best fit.
//
// A sorted array in chunks of at most kChunk entries: an insertion moves a few cache lines, and a million free blocks cost
// two binary searches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gpucast {

class FreeBlocks {
 public:
  struct Entry {
    int64_t size_bytes;
    uint64_t address;
    uint32_t order;  // of its segment
    uint32_t block;
  };
  struct Position {
    size_t chunk, slot;
  };

  bool empty() const { return chunks_.empty(); }
  int64_t largest_bytes() const { return chunks_.back().back().size_bytes; }  // must not be called when empty
  bool at_end(Position position) const { return position.chunk == chunks_.size(); }
  bool at_begin(Position position) const { return position.chunk == 0 && position.slot == 0; }
  const Entry& operator[](Position position) const { return chunks_[position.chunk][position.slot]; }
  Position begin() const { return {0, 0}; }

  // The first entry that is not less than (size, order, address).
  Position lower_bound(int64_t size_bytes, uint32_t order = 0, uint64_t address = 0) const {
    const auto less = [&](const Entry& entry) {
      if (entry.size_bytes != size_bytes) return entry.size_bytes < size_bytes;
      return entry.order != order ? entry.order < order : entry.address < address;
    };
    size_t chunk = 0;
    if (chunks_.size() > 1) {
      const auto found = std::partition_point(chunks_.begin(), chunks_.end(), [&](const Chunk& c) { return less(c.back()); });
      chunk = static_cast<size_t>(found - chunks_.begin());
      if (chunk == chunks_.size()) return {chunk, 0};
    } else if (chunks_.empty() || less(chunks_[0].back())) {
      return {chunks_.size(), 0};
    }
    const Chunk& entries = chunks_[chunk];
    return {chunk, static_cast<size_t>(std::partition_point(entries.begin(), entries.end(), less) - entries.begin())};
  }

  Position next(Position position) const {
    if (++position.slot < chunks_[position.chunk].size()) return position;
    return {position.chunk + 1, 0};
  }
  Position previous(Position position) const {
    if (position.slot > 0) return {position.chunk, position.slot - 1};
    return {position.chunk - 1, chunks_[position.chunk - 1].size() - 1};
  }

  void insert(Entry entry) {
    Position position = lower_bound(entry.size_bytes, entry.order, entry.address);
    if (at_end(position)) {
      if (chunks_.empty()) chunks_.emplace_back().reserve(kChunk);
      position = {chunks_.size() - 1, chunks_.back().size()};
    }
    Chunk& chunk = chunks_[position.chunk];
    chunk.insert(chunk.begin() + static_cast<std::ptrdiff_t>(position.slot), entry);
    if (chunk.size() == kChunk) split(position.chunk);
  }

  void erase(Position position) {
    Chunk& chunk = chunks_[position.chunk];
    chunk.erase(chunk.begin() + static_cast<std::ptrdiff_t>(position.slot));
    if (chunk.empty()) chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(position.chunk));
  }
  void erase(int64_t size_bytes, uint32_t order, uint64_t address) { erase(lower_bound(size_bytes, order, address)); }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const Chunk& chunk : chunks_) {
      for (const Entry& entry : chunk) visit(entry);
    }
  }

 private:
  static constexpr size_t kChunk = 128;
  using Chunk = std::vector<Entry>;

  void split(size_t at) {
    Chunk upper;
    upper.reserve(kChunk);
    upper.assign(chunks_[at].begin() + kChunk / 2, chunks_[at].end());
    chunks_[at].resize(kChunk / 2);
    chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(upper));
  }

  std::vector<Chunk> chunks_;
};

}  // namespace gpucast

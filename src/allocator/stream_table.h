// The order in which PyTorch visits streams and private pools: its allocator keeps them in an open-addressing hash table
// (c10/util/flat_hash_map.h, Robin Hood hashing with Fibonacci hashing, at most half full), and frees blocks in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpucast {

class StreamTable {
 public:
  // `hashes[k]`: the hash of key k, a stream or pool. Not owned.
  explicit StreamTable(const std::vector<uint64_t>* hashes) : hashes_(hashes) {}

  bool empty() const { return count_ == 0; }
  void insert(uint32_t key);  // does nothing if the key is already there
  // Visits keys in the table's order. `visit` returns true to remove the key.
  template <class Visit>
  void visit(Visit visit) {
    for (size_t slot = 0; slot < slots_.size();) {
      if (slots_[slot].distance < 0 || !visit(slots_[slot].key)) {
        ++slot;
      } else {
        remove(slot);
      }
    }
  }
  void clear() {
    for (Slot& slot : slots_) slot.distance = -1;
    count_ = 0;
  }
  // The state of a table that was just moved from: empty and without slots.
  void reset() {
    slots_.clear();
    count_ = buckets_ = 0;
  }

 private:
  struct Slot {
    int distance = -1;  // from the slot that its hash wants; -1: empty
    uint32_t key = 0;
  };
  void remove(size_t slot);
  void grow();
  size_t wanted_slot(uint32_t key) const;

  const std::vector<uint64_t>* hashes_;
  std::vector<Slot> slots_;
  size_t count_ = 0, buckets_ = 0;
  int max_distance_ = 0, shift_ = 63;
};

}  // namespace gpucast

#include "src/allocator/stream_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gpucast {

size_t StreamTable::wanted_slot(uint32_t key) const {
  constexpr uint64_t kGolden = 11400714819323198485ULL;  // 2^64 / the golden ratio
  return static_cast<size_t>((kGolden * (*hashes_)[key]) >> shift_);
}

void StreamTable::grow() {
  std::vector<Slot> old = std::move(slots_);
  buckets_ = std::max<size_t>(4, 2 * buckets_);
  const int log2 = static_cast<int>(std::bit_width(buckets_)) - 1;
  shift_ = 64 - log2;
  max_distance_ = std::max(4, log2);
  slots_.assign(buckets_ + static_cast<size_t>(max_distance_), Slot{});
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.distance >= 0) insert(slot.key);
  }
}

void StreamTable::insert(uint32_t key) {
  for (;;) {
    if (buckets_ == 0) {
      grow();
      continue;
    }
    size_t slot = wanted_slot(key);
    int distance = 0;
    for (; slot < slots_.size() && slots_[slot].distance >= distance; ++slot, ++distance) {
      if (slots_[slot].key == key) return;
    }
    if (distance >= max_distance_ || 2 * (count_ + 1) > buckets_) {
      grow();
      continue;
    }
    // The entry that is closer to its wanted slot is moved.
    Slot moving{distance, key};
    const size_t first = slot;
    bool placed = false;
    for (; slot < slots_.size(); ++slot, ++moving.distance) {
      if (slots_[slot].distance < 0) {
        slots_[slot] = moving;
        ++count_;
        placed = true;
        break;
      }
      if (slots_[slot].distance < moving.distance) std::swap(slots_[slot], moving);
      if (moving.distance + 1 >= max_distance_) break;
    }
    if (placed) return;
    // Too far from the wanted slot: the entry without a slot takes the newcomer's, and the newcomer is inserted into a larger table.
    slots_[first].key = moving.key;
    grow();
  }
}

void StreamTable::remove(size_t slot) {
  slots_[slot].distance = -1;
  --count_;
  for (size_t next = slot + 1; next < slots_.size() && slots_[next].distance > 0; ++slot, ++next) {
    slots_[slot] = {slots_[next].distance - 1, slots_[next].key};
    slots_[next].distance = -1;
  }
}

}  // namespace gpucast

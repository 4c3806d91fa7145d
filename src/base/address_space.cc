#include "src/base/address_space.h"

#include <iterator>
#include <utility>

namespace gpucast {
namespace {

uint64_t round_up_to(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

AddressSpace::AddressSpace(Reserve reserve, uint64_t step_bytes, uint64_t range_bytes, Placement placement)
    : reserve_(std::move(reserve)), step_bytes_(step_bytes), range_bytes_(range_bytes), placement_(placement) {}

uint64_t AddressSpace::fit(uint64_t size_bytes) {
  for (auto place = free_.begin(); place != free_.end(); ++place) {
    if (place->second < size_bytes) continue;
    const auto [start, available] = *place;
    free_.erase(place);
    if (available > size_bytes) free_.emplace(start + size_bytes, available - size_bytes);
    return start;
  }
  return 0;
}

// Called only when addresses run out: joins neighbouring ranges without allocations, so that something larger fits.
void AddressSpace::join_empty_ranges() {
  const auto empty = [&](std::map<uint64_t, uint64_t>::iterator range) {
    const auto place = free_.find(range->first);
    return place != free_.end() && place->second == range->second;
  };
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    for (auto next = std::next(range); next != ranges_.end() && range->first + range->second == next->first; next = std::next(range)) {
      if (!empty(range) || !empty(next)) break;
      range->second += next->second;
      free_[range->first] = range->second;
      free_.erase(next->first);
      ranges_.erase(next);
    }
  }
}

uint64_t AddressSpace::allocate(uint64_t size_bytes) {
  constexpr uint64_t kTooMuch = uint64_t{1} << 62;  // keeps the rounding from overflowing
  if (size_bytes == 0 || size_bytes > kTooMuch) return 0;
  const uint64_t size = round_up_to(size_bytes, step_bytes_);
  uint64_t address = fit(size);
  if (address == 0) {
    const uint64_t range_size = round_up_to(size, range_bytes_);
    const uint64_t start = reserve_(range_size, range_bytes_);
    if (start != 0) {
      ranges_.emplace(start, range_size);
      free_.emplace(start, range_size);
      reserved_bytes_ += range_size;
    } else {
      join_empty_ranges();
    }
    address = fit(size);
  }
  if (address == 0) return 0;
  used_.emplace(address, size);
  allocated_bytes_ += size;
  return address;
}

uint64_t AddressSpace::free(uint64_t address) {
  const auto block = used_.find(address);
  if (block == used_.end()) return 0;
  const uint64_t size = block->second;
  used_.erase(block);
  allocated_bytes_ -= size;
  if (placement_ == Placement::above_all) {
    ranges_.erase(address);
    reserved_bytes_ -= size;
    return size;
  }
  auto place = free_.emplace(address, size).first;
  const auto next = std::next(place);
  if (next != free_.end() && address + size == next->first && !ranges_.contains(next->first)) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place != free_.begin() && !ranges_.contains(address)) {
    const auto previous = std::prev(place);
    if (previous->first + previous->second == address) {
      previous->second += place->second;
      free_.erase(place);
    }
  }
  return size;
}

uint64_t AddressSpace::release_empty_range() {
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    const auto place = free_.find(range->first);
    if (place == free_.end() || place->second != range->second) continue;
    const uint64_t start = range->first;
    reserved_bytes_ -= range->second;
    free_.erase(place);
    ranges_.erase(range);
    return start;
  }
  return 0;
}

bool AddressSpace::find(uint64_t address, uint64_t* start, uint64_t* size_bytes) const {
  auto block = used_.upper_bound(address);
  if (block == used_.begin()) return false;
  --block;
  if (address - block->first >= block->second) return false;
  *start = block->first;
  *size_bytes = block->second;
  return true;
}

}  // namespace gpucast

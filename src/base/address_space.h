// The placement of device memory: only the bookkeeping of addresses; nothing is mapped here.
//
// Linux drivers reserve address ranges in multiples of 32 MiB, each below the last. An allocation goes to the lowest gap in a reserved
// range where it fits. The order of addresses matters: PyTorch's best fit breaks ties by it.
//
//     reserve 32 MiB      [ A: 20 MiB ][ B: 2 ][ free 10 ]
//     C: 20 MiB, below    [ C: 20 MiB ][ free 12         ]      D: 2 MiB goes directly after C, into the lowest gap
//
// With Placement::above_all each allocation is its own range, directly above the highest living one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace gpucast {

class AddressSpace {
 public:
  // Returns `size_bytes` of new addresses, aligned to `alignment_bytes`, and below its earlier results if possible; 0: none left.
  using Reserve = std::function<uint64_t(uint64_t size_bytes, uint64_t alignment_bytes)>;

  enum class Placement { lowest_place, above_all };

  // Sizes are rounded up to `step_bytes`, new ranges to `range_bytes`; both powers of two.
  AddressSpace(Reserve reserve, uint64_t step_bytes, uint64_t range_bytes, Placement placement = Placement::lowest_place);

  // Returns the address, or 0 if there is no room. O(gaps).
  uint64_t allocate(uint64_t size_bytes);
  // Returns the size of the allocation, or 0 if no allocation starts at `address`.
  uint64_t free(uint64_t address);
  // Gives up the lowest range without allocations. Returns its address, or 0 if there is none.
  uint64_t release_empty_range();
  // Finds the allocation that contains `address`; false: none.
  bool find(uint64_t address, uint64_t* start, uint64_t* size_bytes) const;

  // The end of the highest range; 0: there is none.
  uint64_t end() const { return ranges_.empty() ? 0 : ranges_.rbegin()->first + ranges_.rbegin()->second; }

  uint64_t allocated_bytes() const { return allocated_bytes_; }
  uint64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  uint64_t fit(uint64_t size_bytes);
  void join_empty_ranges();

  Reserve reserve_;
  uint64_t step_bytes_, range_bytes_;
  Placement placement_;
  uint64_t allocated_bytes_ = 0, reserved_bytes_ = 0;
  std::map<uint64_t, uint64_t> ranges_;  // start -> size
  std::map<uint64_t, uint64_t> free_;    // start -> size; a gap never crosses the border of a range
  std::map<uint64_t, uint64_t> used_;
};

}  // namespace gpucast

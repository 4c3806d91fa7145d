// What the first warp of a block stores into shared memory for the others, in a kernel with loops: warps run one after another, so a place
// keeps all its numbers, and a warp that reads it for the n-th time gets the n-th. Triton's specialized warps get their tasks and the
// arguments of these this way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace gpucast::ptx {

class HandedNumbers {
 public:
  void clear() { by_place_.clear(); }
  void write(uint64_t place, uint32_t bytes, uint64_t value);
  // `times`: how often this place was read before. Unset: nothing is known of it.
  std::optional<uint64_t> read(uint64_t place, uint32_t bytes, uint32_t times) const;

 private:
  std::map<uint64_t, std::vector<unsigned char>> by_place_;  // by byte
};

}  // namespace gpucast::ptx

// A value of a register in the width of an instruction.
#pragma once

#include <cstdint>

namespace gpucast::ptx {

inline uint64_t low_bits(uint64_t value, uint32_t bits) { return bits >= 64 ? value : value & ((1ULL << bits) - 1); }
inline int64_t with_sign(uint64_t value, uint32_t bits) {
  return bits >= 64 || bits == 0 ? static_cast<int64_t>(value) : static_cast<int64_t>(value << (64 - bits)) >> (64 - bits);
}

}  // namespace gpucast::ptx

// A hash of several numbers.
#pragma once

#include <cstdint>

namespace gpucast::vgpu {

inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

}  // namespace gpucast::vgpu

// Hashes of launches: equal launches take equally long and do the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "src/vgpu/core/launch_values.h"

namespace gpucast::vgpu {

inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

inline uint64_t launch_hash(std::string_view name, const unsigned grid[3], const unsigned block[3]) {
  uint64_t hash = std::hash<std::string_view>{}(name);
  for (int i = 0; i < 3; ++i) hash = mix_hash(hash, uint64_t{grid[i]} << 32 | block[i]);
  return hash;
}

// `launch`: launch_hash() of it. With its code, arguments and known values.
inline uint64_t compiled_hash(uint64_t launch, size_t dynamic_shared_bytes, const CompiledLaunch& compiled) {
  uint64_t hash = mix_hash(mix_hash(launch, compiled.code->hash), std::hash<std::string_view>{}(compiled.parameters));
  hash = mix_hash(hash, dynamic_shared_bytes);
  for (const LaunchValuesRef& one : compiled.values) hash = mix_hash(hash, one->id);
  return hash;
}

}  // namespace gpucast::vgpu

#pragma once

#include <cstdint>
#include <string_view>

namespace gpucast::vgpu {

inline uint64_t checksum(std::string_view text) {  // FNV-1a
  uint64_t hash = 14695981039346656037ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

}  // namespace gpucast::vgpu

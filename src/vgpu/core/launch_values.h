// Values on the card that the host knows: what a compiled kernel may read to find its addresses and loops (src/kernels). Unlike the
// contents of device memory, they stay when a kernel runs: a kernel seldom changes its indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

struct LaunchValues {
  uint64_t id = 0;  // of this address and these bytes
  uint64_t address = 0;
  std::string bytes;
};
using LaunchValuesRef = std::shared_ptr<const LaunchValues>;

// The bytes at `address` from now on. What is known around them stays.
GPUCAST_VGPU_API void remember_values(uint64_t address, std::string_view bytes);
GPUCAST_VGPU_API void forget_values(uint64_t address, size_t size_bytes);
// What is known where these pointers lead, each once.
GPUCAST_VGPU_API std::vector<LaunchValuesRef> values_at(std::span<const uint64_t> pointers);

}  // namespace gpucast::vgpu

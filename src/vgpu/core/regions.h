// Which addresses belong to the virtual card, and what small copies left there. Internal to the core.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpucast::vgpu {

// Address ranges that the card's memory lies in: told apart from host addresses without a lock.
void add_device_region(uint64_t start, uint64_t size_bytes);
bool in_device_region(uint64_t address);

void forget_contents(uint64_t address, size_t size_bytes);
bool any_contents();  // false: all of the card's memory reads as zeros

}  // namespace gpucast::vgpu

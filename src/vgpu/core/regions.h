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

// The host has read from the card, in this thread. Puts something better in the place of zeros where that is known (reads.cc).
void note_read(void* to, size_t size_bytes, bool known);
// The host has copied to the card.
void note_upload(size_t size_bytes);
// Launched by this thread. `name`: mangled, valid as long as its module is loaded.
void note_kernel(const char* name, const void* const* arguments);

}  // namespace gpucast::vgpu

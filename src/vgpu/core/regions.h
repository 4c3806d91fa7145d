// The address ranges of the virtual card, and the contents that small copies left there. Internal to the core.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpucast::vgpu {

// The address ranges of the card's memory. A lookup takes no lock.
void add_device_region(uint64_t start, uint64_t size_bytes);
bool in_device_region(uint64_t address);

void forget_contents(uint64_t address, size_t size_bytes);
bool any_contents();  // false: all of the card's memory reads as zeros

// This thread has read from the card. Replaces zeros by a better value if one is known (reads.cc).
void note_read(void* to, size_t size_bytes, bool known);
// The host has copied to the card.
void note_upload(size_t size_bytes);
// This thread has launched a kernel. `name`: mangled, valid as long as its module is loaded.
void note_kernel(const char* name, const void* const* arguments);

}  // namespace gpucast::vgpu

// The threads that submit work to the card: their numbers, and their CPU time. Internal to the core.
#pragma once

#include <cstdint>

namespace gpucast::vgpu {

// The number of the calling thread, which submits work now: from 1, in the order of their first work.
uint64_t issuing_thread();

}  // namespace gpucast::vgpu

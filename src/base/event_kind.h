// What an allocator can do, as PyTorch's memory history names it. Shared by what is read and what is simulated.
#pragma once

#include <cstdint>

namespace gpucast {

enum class EventKind : uint8_t { alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom };

}  // namespace gpucast

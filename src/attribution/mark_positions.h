// Where marks lie in the allocator's history.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/trace.h"

namespace gpucast {

// In the order of trace.marks: each mark's position, which lies between two events (see lifetime.h).
std::vector<uint32_t> mark_positions(const Trace& trace);

}  // namespace gpucast

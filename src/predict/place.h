// Where in the program an allocator event happened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/attribution/attribution.h"

namespace gpucast {

// Innermost first: "train.py:17 main".
std::vector<std::string> frames_of(const Trace& trace, StackId id);

// Snapshots have only the stack.
Place place_of_event(const Trace& trace, const Attribution& attribution, uint32_t event);

}  // namespace gpucast

// The allocator's settings in a memory snapshot.
#pragma once

#include <string>

#include "gpucast/trace.h"
#include "src/trace/pickle.h"

namespace gpucast {

// In the format of PYTORCH_CUDA_ALLOC_CONF. The dict has the settings that were in force, even if the script changed them. The
// environment's text has settings that the dict lacks. Empty when `settings` is no dict.
std::string snapshot_settings(const PickleReader& reader, const StringTable& strings, PickleValue settings);

}  // namespace gpucast

// A profiler trace -> the capture that a run on the virtual GPU would have given, as far as it can be known.
#pragma once

#include "gpucast/gpu.h"
#include "gpucast/profile.h"
#include "gpucast/trace.h"
#include "src/orchestrate/rules.h"

namespace gpucast {

// Reads top to bottom: facts, roles, rules, simulated allocator, events and marks. `gpu`: the card to predict for.
// Throws Error where the trace has nothing to go by, saying which switch of the profiler is missing.
Trace trace_from_profile(ProfileTrace profile, const Gpu& gpu, const OrchestrateOptions& options);

}  // namespace gpucast

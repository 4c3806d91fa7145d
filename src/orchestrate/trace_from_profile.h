// Turns a profiler trace into the capture that a run on the virtual GPU would have given, as far as the trace allows.
#pragma once

#include "gpucast/gpu.h"
#include "gpucast/profile.h"
#include "gpucast/trace.h"
#include "src/orchestrate/rules.h"

namespace gpucast {

// Reads top to bottom: facts, roles, rules, simulated allocator, events and marks. `gpu`: the card to predict for. Throws Error if the
// trace lacks what the prediction needs, and names the missing switch of the profiler.
Trace trace_from_profile(ProfileTrace profile, const Gpu& gpu, const OrchestrateOptions& options);

}  // namespace gpucast

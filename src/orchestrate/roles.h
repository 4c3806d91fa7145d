// Finds out which traced blocks are parameters, gradients or optimizer state.
//
// The tables of `gpucast profile` give each tensor's address and time. If the trace has none:
//   gradients        made in backward and alive at the optimizer's step
//   optimizer_state  made in the optimizer's step and alive after it
//   parameters       made before the loop, alive in it, with the size of a gradient
//   buffers          made among the parameters, alive in the loop
#pragma once

#include "src/orchestrate/profile_facts.h"
#include "src/orchestrate/sequence.h"

namespace gpucast {

void assign_roles(const ProfileFacts& facts, Sequence* sequence);

}  // namespace gpucast

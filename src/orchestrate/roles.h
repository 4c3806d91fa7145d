// Which traced block is a parameter, a gradient, optimizer state.
//
// By the tables of `gpucast profile` where the trace has them: they say which tensor lay at which address, and when. Else:
//   gradients        made in backward and alive at the optimizer's step
//   optimizer_state  made in the optimizer's step and alive after it
//   parameters       made before the loop, alive in it, of a size that a gradient has
//   buffers          made among the parameters, alive in the loop
#pragma once

#include "src/orchestrate/profile_facts.h"
#include "src/orchestrate/sequence.h"

namespace gpucast {

void assign_roles(const ProfileFacts& facts, Sequence* sequence);

}  // namespace gpucast

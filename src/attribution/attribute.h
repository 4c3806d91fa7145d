// Blocks, marks and tensors -> phase, step, module and category of every block.
//
// Every block starts unattributed and each rule below may explain it; nothing is counted twice and nothing is lost, so the
// categories add up to the allocated bytes after every event. That is the invariant this stage is tested by.
//
// Categories, the first that holds:
//   parameters, gradients, optimizer_state, buffers, inputs   the capture layer saw a tensor of this kind in the block
//   parameter_copies  likewise: copies of trained parameters that no optimizer trains (EMA, SWA, target networks)
//   workspaces    the block was handed to a library as scratch space
//   inputs        a host-to-device copy filled the block, outside of model_to_device, forward, backward and optimizer_step
//   communication  code of parallel training allocated it (communication.h)
//   activations   allocated in forward or loss, and alive when the next backward begins (without any backward: when the outermost
//                 forward ends; in a run cut short: when it was cut); or recomputed: allocated in a forward inside backward, and
//                 alive when that forward ends; or what an evaluation returns
//   intermediate_gradients   allocated in backward, and alive when autograd's next node begins or that backward ends: what one
//                 node hands to another
//   temporaries   any other block of forward, loss, backward, optimizer_step or zero_grad, and any other block that was freed
//   unattributed  what is left: it outlives the capture and nothing explains it. Of a memory snapshot all, for it has no marks
//
// Buffers (a module's tensors that are no parameters, such as batch norm's running mean) are a category of their own, so
// that `parameters` is exactly what the optimizer trains.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

// Adds what does not fit together to trace.problems.
Attribution attribute(const Trace& trace, const Lifetimes& lifetimes, Problems* problems);

// In the order of trace.marks: each mark's position in the history (see lifetime.h).
std::vector<uint32_t> mark_positions(const Trace& trace);

}  // namespace gpucast

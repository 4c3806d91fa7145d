// Blocks, marks and tensors -> phase, step, module and category of every block.
//
// Every block starts unattributed, and each rule below may give it a category. No block counts twice and none is lost, so the categories
// add up to the allocated bytes after every event. Tests check this invariant.
//
// Categories; the first one that fits is used:
//   parameters, gradients, optimizer_state, buffers, inputs   the capture layer saw a tensor of this kind in the block
//   parameter_copies  the same; copies of trained parameters that no optimizer trains (EMA, SWA, target networks)
//   workspaces    the block was handed to a library as scratch space
//   inputs        a host-to-device copy filled the block, outside of model_to_device, forward, backward and optimizer_step
//   communication  code of parallel training allocated it (communication.h)
//   activations   allocated in forward or loss, and alive when the next backward begins (without any backward: when the outermost
//                 forward ends; in a run that was cut short: when it was cut); or recomputed: allocated in a forward inside
//                 backward, and alive when that forward ends; or the result of an evaluation
//   intermediate_gradients   allocated in backward, and alive when autograd's next node begins or that backward ends: one node
//                 passes it to another
//   temporaries   any other block of forward, loss, backward, optimizer_step or zero_grad, and any other block that was freed
//   unattributed  all other blocks: they outlive the capture, and no rule explains them. In a memory snapshot these are all
//                 blocks, because it has no marks
//
// Buffers (a module's tensors that are no parameters, such as batch norm's running mean) have their own category, so that
// `parameters` is exactly the memory of trained parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

// Adds contradictions to trace.problems.
Attribution attribute(const Trace& trace, const Lifetimes& lifetimes, Problems* problems);

// Each mark's position in the history (see lifetime.h), in the order of trace.marks.
std::vector<uint32_t> mark_positions(const Trace& trace);

}  // namespace gpucast

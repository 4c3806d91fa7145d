// The operator that allocated a block, if the input shows it.
//
//   backward       autograd's node: "ConvolutionBackward0"
//   profile trace  the outermost operator around the allocation that Python called: "aten::conv2d"
//   elsewhere      from the Python stack, since the allocator's history does not name operators: "nn.functional.relu",
//                  "nn.Conv2d" for code of a PyTorch module, "optim.adamw", or the line of the program: "train.py:31 forward"
//   "" where none of these is known
#pragma once

#include "src/attribution/attribution.h"

namespace gpucast {

// Fills attribution->operators, and BlockAttribution::op from the spans' nodes and the blocks' stacks.
void name_operators(const Trace& trace, const Lifetimes& lifetimes, Attribution* attribution);

}  // namespace gpucast

// The allocations of PyTorch's optimizers (torch/optim/*.py, releases 2.6 to 2.14).
#pragma once

#include <string>
#include <vector>

#include "src/orchestrate/profile_facts.h"

namespace gpucast {

// The optimizer of a step: its name from "Optimizer.step#Adam.step", and its options if the trace has them.
OptimizerFacts optimizer_at(const ProfileFacts& facts, const PhaseWindow& step);

// The sizes of the parameters that a step updates, in the optimizer's order. Empty: the step works on lists, or the trace has no shapes.
std::vector<int64_t> updated_parameters(const ProfileFacts& facts, const PhaseWindow& step);

// The number of tensors of a parameter's size that it keeps for each parameter.
int state_tensors(const OptimizerFacts& optimizer);

// For CUDA: the number of lists, with one tensor for each parameter, that its step makes one after the other and frees at its end; -1: not
// known. The list of gradients with weight decay is not counted.
int foreach_lists(const OptimizerFacts& optimizer, bool decays_gradients);

}  // namespace gpucast

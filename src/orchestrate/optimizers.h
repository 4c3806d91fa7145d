// What PyTorch's optimizers allocate (torch/optim/*.py, releases 2.6 to 2.14).
#pragma once

#include <string>
#include <vector>

#include "src/orchestrate/profile_facts.h"

namespace gpucast {

// The optimizer of a step: by its name in "Optimizer.step#Adam.step", with its options where the trace has them.
OptimizerFacts optimizer_at(const ProfileFacts& facts, const PhaseWindow& step);

// Bytes of the parameters a step updates, in the optimizer's order; empty where the step works on lists, or has no shapes.
std::vector<int64_t> updated_parameters(const ProfileFacts& facts, const PhaseWindow& step);

// Tensors of a parameter's size that it keeps for each parameter.
int state_tensors(const OptimizerFacts& optimizer);

// On CUDA: lists of one tensor a parameter that its step makes, one list after the other, all alive until it ends; -1: not
// known. The list of gradients with weight decay added, where there is one, is not counted.
int foreach_lists(const OptimizerFacts& optimizer, bool decays_gradients);

}  // namespace gpucast

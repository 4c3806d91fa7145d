// An operator of PyTorch and what it was called with -> the operation its kernels are, with the bytes they move.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "gpucast/recorded_arguments.h"
#include "src/time/operation.h"

namespace gpucast {

// Each distinct byte of a tensor counts once: a dimension of stride 0 has one element. What is written follows from the operator. Unset:
// nothing is known of it, and none of its tensors lies on the card.
std::optional<Operation> operator_operation(std::string_view name, const std::vector<OperatorArgument>& inputs);

// False: no row of operator_forms.cc names it, and it is estimated as an elementwise one.
bool operator_is_known(std::string_view name);

}  // namespace gpucast

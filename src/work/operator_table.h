// Turns a PyTorch operator and its arguments into the operation of its kernels, with the bytes that they move.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "gpucast/recorded_arguments.h"
#include "src/time/operation.h"

namespace gpucast {

// Each distinct byte of a tensor counts once: a dimension of stride 0 has one element. The operator determines the bytes written. Unset:
// none of its tensors is on the card.
std::optional<Operation> operator_operation(std::string_view name, const std::vector<OperatorArgument>& inputs);

// False: the operator is in no row of operator_forms.cc, and is estimated as an elementwise one.
bool operator_is_known(std::string_view name);

}  // namespace gpucast

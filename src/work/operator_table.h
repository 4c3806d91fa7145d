// An operator of PyTorch and what it was called with -> the operation its kernels are, with the bytes they move.
#pragma once

#include <optional>
#include <string_view>

#include "src/base/json.h"
#include "src/time/operation.h"

namespace gpucast {

// `inputs`: as in a capture (docs/reference/capture-format.md). Each distinct byte of a tensor counts once: a dimension of stride 0 has one
// element. What is written follows from the operator. Unset: nothing is known of it, and none of its tensors lies on the card.
std::optional<Operation> operator_operation(std::string_view name, const Json& inputs);

// False where its kind is a guess: an operator that is in no list here and is taken for an elementwise one.
bool operator_is_known(std::string_view name);

}  // namespace gpucast

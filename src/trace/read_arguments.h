// Arguments as a capture holds them (docs/reference/capture-format.md) -> plain structs.
#pragma once

#include <vector>

#include "gpucast/recorded_arguments.h"
#include "src/base/json.h"

namespace gpucast {

// Sizes and numbers that cannot be are bounded. What is no list, or no object: no arguments.
std::vector<OperatorArgument> operator_arguments(const Json& list);
CallArguments call_arguments(const Json& object);

}  // namespace gpucast

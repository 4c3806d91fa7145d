// Arguments in a capture (docs/reference/capture-format.md) -> plain structs.
#pragma once

#include <vector>

#include "gpucast/recorded_arguments.h"
#include "src/base/json.h"

namespace gpucast {

// Impossible sizes and numbers are limited to a range. A value that is no list or no object gives no arguments.
std::vector<OperatorArgument> operator_arguments(const Json& list);
CallArguments call_arguments(const Json& object);

}  // namespace gpucast

// Which frame of a stack to show.
#pragma once

#include <string>

#include "gpucast/prediction.h"

namespace gpucast {

// The innermost frame of Python code that is the user's own rather than PyTorch's or another library's; "" when there is none.
std::string user_frame(const Place& place);

}  // namespace gpucast

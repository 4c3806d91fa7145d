// Which frame of a stack to show.
#pragma once

#include <string>

#include "gpucast/prediction.h"

namespace gpucast {

// The innermost frame of the user's own Python code, not PyTorch's or another library's; "" if there is none.
std::string user_frame(const Place& place);

}  // namespace gpucast

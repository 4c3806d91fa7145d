// The limit on the growth of peak reserved, as a user writes it.
#pragma once

#include <cstdint>
#include <string>

#include "gpucast/diff.h"

namespace gpucast {

// "5%" of the run before, or a size: "50MiB". "0" and "0%" allow no growth. Throws Error; `option` ("--fail-above") is for its message.
FailAbove parse_fail_above(const std::string& text, int64_t before_bytes, const std::string& option);

}  // namespace gpucast

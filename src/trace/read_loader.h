// The `loader` record of a capture.
#pragma once

#include <string_view>

#include "gpucast/loader.h"

namespace gpucast {

// `text`: the record's line. False when it is no such record; `out` is then unchanged. Impossible numbers (negative, not finite, far too
// large) count as 0. Runs without a period are left out.
bool read_loader(std::string_view text, LoaderRecord* out);

}  // namespace gpucast

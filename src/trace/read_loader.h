// The `loader` record of a capture.
#pragma once

#include <string_view>

#include "gpucast/loader.h"

namespace gpucast {

// `text`: the record's line. False where it is none; `out` is then as it was. Numbers that cannot be (negative, not finite, beyond all
// measure) read as 0, runs without a period are left out.
bool read_loader(std::string_view text, LoaderRecord* out);

}  // namespace gpucast

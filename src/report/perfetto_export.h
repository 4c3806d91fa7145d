// A history as Chrome trace events, for ui.perfetto.dev and chrome://tracing (docs/reference/perfetto.md).
#pragma once

#include <ostream>

#include "src/predict/analysis.h"

namespace gpucast {

// JSON, written event by event, so memory does not grow with the file. Throws Error if `out` cannot be written.
void write_perfetto(const Analysis& analysis, std::ostream& out);

}  // namespace gpucast

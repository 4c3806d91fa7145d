// The report that a browser opens: one file, no network (docs/reference/html-report.md).
#pragma once

#include <ostream>

#include "src/predict/analysis.h"

namespace gpucast {

// The page (web/) with the data of one capture. Throws Error if this build has no page (GPUCAST_WEB=OFF) or `out` cannot be written.
void write_html(const Analysis& analysis, std::ostream& out);

}  // namespace gpucast

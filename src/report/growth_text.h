// Memory that grows, in text reports.
#pragma once

#include "gpucast/growth.h"
#include "src/report/text_writer.h"

namespace gpucast {

void write_growth(const Growth& growth, TextWriter* out);

}  // namespace gpucast

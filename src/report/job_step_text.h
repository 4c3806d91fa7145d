// The job of several ranks in the text report of `gpucast time`.
#pragma once

#include "gpucast/step_time.h"
#include "src/report/text_writer.h"

namespace gpucast {

void write_job(TextWriter& out, const JobStep& job);

}  // namespace gpucast

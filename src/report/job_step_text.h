// The job of several ranks in the text report of `gpucast time`.
#pragma once

#include <vector>

#include "gpucast/job_step.h"
#include "src/report/text_writer.h"

namespace gpucast {

void write_job(TextWriter& out, const JobStep& job, bool loader_bound);
void write_missing(TextWriter& out, const JobStep& job);  // nothing, if no rank is missing
void write_scale(TextWriter& out, const std::vector<ScalePoint>& points);

}  // namespace gpucast

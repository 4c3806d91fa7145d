// The page of a job's step: its roles on one clock.
#pragma once

#include <ostream>

#include "gpucast/step_time.h"

namespace gpucast {

// Throws Error if this build has no pages (GPUCAST_WEB=OFF).
void check_job_page();

// `times`: its first card has a job with slices. Throws Error if `out` cannot be written.
void write_job_html(const StepTimes& times, std::ostream& out);

}  // namespace gpucast

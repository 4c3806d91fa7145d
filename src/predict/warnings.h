// Warnings: facts that the reader of a report should know in addition to the figures.
#pragma once

#include <string>

#include "gpucast/gpu.h"
#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/base/alloc_conf.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

// Fills the fields that describe the run; they are the same for every card.
void describe_run(const Trace& trace, Prediction* out);
// Fills the fields that name the card it is judged for.
void describe_card(const Trace& trace, const Gpu& captured, const Gpu& gpu, bool gpu_named, Prediction* out);

// Why the peaks do not show the job's memory: it ended before its first optimizer step. "": they do.
std::string nothing_to_judge(const Trace& trace, const Prediction& prediction);

// All warnings, the weightiest first. Codes: docs/reference/warnings.md.
void add_warnings(const Trace& trace, const AllocConf& conf, const Comparison& comparison, const Gpu& captured, const Gpu& gpu,
                  Prediction* out);

}  // namespace gpucast

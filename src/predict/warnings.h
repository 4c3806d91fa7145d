// What the reader of a report should know beside the figures.
#pragma once

#include <string>

#include "gpucast/gpu.h"
#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/base/alloc_conf.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

// The fields that say what ran, whatever the card.
void describe_run(const Trace& trace, Prediction* out);
// The fields that name the card it is judged for.
void describe_card(const Trace& trace, const Gpu& captured, const Gpu& gpu, bool gpu_named, Prediction* out);

// Why the peaks say nothing of what the job takes: it ended before its first optimizer step. "" when they do.
std::string nothing_to_judge(const Trace& trace, const Prediction& prediction);

// All warnings, the weightiest first. Codes: docs/reference/warnings.md.
void add_warnings(const Trace& trace, const AllocConf& conf, const Comparison& comparison, const Gpu& captured, const Gpu& gpu,
                  Prediction* out);

}  // namespace gpucast

// What a capture knows of its job that tells how far off a prediction may be.
#pragma once

#include <optional>
#include <vector>

#include "gpucast/ledger.h"
#include "gpucast/trace.h"
#include "src/ledger/calibration.h"

namespace gpucast {

// By the convolutions that cuDNN computes, and by inputs whose lengths vary; one or both, or no_convolutions.
std::vector<JobClass> job_classes(const Convolutions& convolutions, bool lengths_vary);

// The input whose shapes differ most between steps, where one step has a shape that another has not and the other way round (so a
// forward that only one step has is no difference). The first dimension, most often the batch, does not count.
std::optional<VaryingInput> varying_input(const Trace& trace);

}  // namespace gpucast

// The facts of a capture that determine how large a prediction's error may be.
#pragma once

#include <optional>
#include <vector>

#include "gpucast/ledger.h"
#include "gpucast/trace.h"
#include "src/ledger/calibration.h"

namespace gpucast {

// One class for the convolutions that cuDNN computes, one for inputs whose lengths vary, or both; else no_convolutions.
std::vector<JobClass> job_classes(const Convolutions& convolutions, bool lengths_vary);

// The input whose shapes differ most between steps. Two steps differ if each has a shape that the other one does not have, so a forward in
// only one step is no difference. The first dimension, usually the batch, does not count.
std::optional<VaryingInput> varying_input(const Trace& trace);

}  // namespace gpucast

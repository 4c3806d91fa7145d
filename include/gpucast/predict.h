// The whole pipeline: a capture in, a prediction out.
#pragma once

#include <optional>
#include <string>

#include "gpucast/prediction.h"
#include "gpucast/trace.h"

namespace gpucast {

// `gpu`: the card to judge by; unset: the capture's. `confidence`: with which the job is to run with what is requested for it, from 0.5
// to below 1. Throws Error for a card nobody knows.
Prediction predict(Trace trace, const std::optional<std::string>& gpu, double confidence = 0.99);

}  // namespace gpucast

// The whole pipeline: a capture in, a prediction out.
#pragma once

#include <optional>
#include <string>

#include "gpucast/prediction.h"
#include "gpucast/trace.h"

namespace gpucast {

// The probability that a job runs within its requested memory: the least and the largest that a user can request.
inline constexpr double kLeastConfidence = 0.5, kMostConfidence = 0.9999, kDefaultConfidence = 0.99;
void check_confidence(double confidence);  // throws Error outside this range

// `gpu`: the card to judge by; unset: the capture's. Throws Error for an unknown card, and for a confidence outside the range.
Prediction predict(Trace trace, const std::optional<std::string>& gpu, double confidence = kDefaultConfidence);

}  // namespace gpucast

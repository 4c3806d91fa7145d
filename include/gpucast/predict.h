// The whole pipeline: a capture in, a prediction out.
#pragma once

#include <optional>
#include <string>

#include "gpucast/prediction.h"
#include "gpucast/trace.h"

namespace gpucast {

// With which probability a job is to run with what is requested for it: from the least to the largest that can be asked for.
inline constexpr double kLeastConfidence = 0.5, kMostConfidence = 0.9999, kDefaultConfidence = 0.99;
void check_confidence(double confidence);  // throws Error outside of them

// `gpu`: the card to judge by; unset: the capture's. Throws Error for a card nobody knows, and for a confidence that cannot be promised.
Prediction predict(Trace trace, const std::optional<std::string>& gpu, double confidence = kDefaultConfidence);

}  // namespace gpucast

// The whole pipeline: a capture in, a prediction out.
#pragma once

#include <optional>
#include <string>

#include "gpucast/prediction.h"
#include "gpucast/trace.h"

namespace gpucast {

// `gpu`: the card to judge by; unset: the capture's. Throws Error for a card nobody knows.
Prediction predict(Trace trace, const std::optional<std::string>& gpu);

}  // namespace gpucast

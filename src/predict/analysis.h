// All that is known of one capture: the prediction, and what it was made from. Reports that go into detail start here.
#pragma once

#include <optional>
#include <string>

#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

struct Analysis {
  Trace trace;
  Lifetimes lifetimes;
  Attribution attribution;  // of lifetimes.blocks, one by one
  Prediction prediction;
};

// The whole pipeline. `gpu`: the card to judge by; unset: the capture's. Throws Error for a card nobody knows.
Analysis analyze(Trace trace, const std::optional<std::string>& gpu);

}  // namespace gpucast

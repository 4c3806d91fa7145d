// All that is known of one capture: the prediction, and what it was made from. Reports that go into detail start here.
#pragma once

#include <optional>
#include <string>

#include "gpucast/gpu.h"
#include "gpucast/predict.h"
#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/ledger/beside.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

struct Analysis {
  Trace trace;
  Lifetimes lifetimes;
  Attribution attribution;  // of lifetimes.blocks, one by one
  Gpu gpu;                  // that it is judged by
  Prediction prediction;
  Beside beside;  // on the prediction's card
};

// The whole pipeline. As predict().
Analysis analyze(Trace trace, const std::optional<std::string>& gpu, double confidence = kDefaultConfidence);

}  // namespace gpucast

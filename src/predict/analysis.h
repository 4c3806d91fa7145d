// Facts judged for one card: the prediction and its basis. Detailed reports start here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/predict.h"
#include "gpucast/prediction.h"
#include "src/ledger/beside.h"
#include "src/predict/facts.h"

namespace gpucast {

struct Analysis {
  std::shared_ptr<const Facts> facts;
  Gpu gpu;  // the card it is judged for
  Prediction prediction;
  Beside beside;  // on that card
};

// `gpu`: the card to judge for; unset: the capture's. Throws as predict() does.
Analysis judge(std::shared_ptr<const Facts> facts, const std::optional<std::string>& gpu, double confidence = kDefaultConfidence);

// The captured ranks and devices of a job: the deciding one, which does not fit or needs most. Of several, its prediction has all figures.
Analysis judge_job(const std::vector<std::shared_ptr<const Facts>>& ranks, const std::string& gpu, double confidence = kDefaultConfidence);

}  // namespace gpucast

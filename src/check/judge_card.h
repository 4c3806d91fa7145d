// Judges a captured job by its limits, for one card.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/check/baseline.h"
#include "src/check/result.h"
#include "src/predict/facts.h"

namespace gpucast::check {

// One result for each limit of the job. `growth`: nullptr if there is no baseline; gets the bound.
std::vector<LimitResult> judge_limits(const Job& job, const Prediction& prediction, const CardFigures& figures, Diff* growth);

// The rows of a diff that changed; the same module of several layers is one row, unless it is new or gone. Without frames. `largest`: for
// each, the row with the largest change.
std::vector<GrownModule> rows_of_layers(const std::vector<DiffRow>& rows, std::vector<const DiffRow*>* largest);

// `ranks`: the captured ranks of the job. `baseline`: of this job and card; nullptr: none. Throws Error when the capture has no verdict or
// no step time to compare.
CardResult judge_card(const Job& job, const std::vector<std::shared_ptr<const Facts>>& ranks, const std::string& gpu,
                      const CardFigures* baseline);

}  // namespace gpucast::check

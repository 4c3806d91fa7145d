// A step together with the loader that feeds it.
#pragma once

#include <optional>
#include <vector>

#include "gpucast/step_time.h"
#include "src/loader/loader_model.h"
#include "src/schedule/step_constants.h"
#include "src/time/duration.h"
#include "src/work/step_operations.h"

namespace gpucast {

// Unset: the capture has no record of a loader.
std::optional<LoaderFigures> loader_figures(const LoaderRecord& record, const StepOperations& step, const std::optional<LoaderModel>& model,
                                            const std::vector<int64_t>& workers);

// Adds the loader to `card`, whose step so far finds every batch ready. `factor`: the operations' times are multiplied by it, as in `card`.
void add_loader(const LoaderModel& model, const LoaderFigures& figures, const StepOperations& step, std::vector<Duration> durations,
                const StepConstants& constants, const StepTimeOptions& options, double factor, CardTime* card);

}  // namespace gpucast

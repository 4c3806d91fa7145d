// What the groups of a step work together for.
#pragma once

#include <vector>

#include "gpucast/job_step.h"
#include "src/work/step_operations.h"

namespace gpucast {

// Whether each group of the step sums activations in a forward: it splits a layer.
std::vector<bool> sum_in_forward(const StepOperations& step);

GroupPurpose purpose_of(CollectiveKind kind, bool sums_in_forward);

inline const CollectiveShape& shape_of(const StepOperations& step, const StepOperation& operation) {
  return step.shapes[operation.shape].collective;
}
inline const Communication& communication_of(const StepOperations& step, const StepOperation& operation) {
  return step.communications[static_cast<size_t>(operation.communication)];
}

}  // namespace gpucast

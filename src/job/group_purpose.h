// What each communicator of a step is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpucast/job_step.h"
#include "src/time/operation.h"
#include "src/work/step_operations.h"

namespace gpucast {

// "mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP": tensor. Unset: the description names no purpose, or several.
std::optional<GroupPurpose> described_purpose(std::string_view description);

// The purposes of a step's groups.
class GroupPurposes {
 public:
  explicit GroupPurposes(const StepOperations& step);
  GroupPurpose of(uint32_t group, CollectiveKind kind) const;
  // Whether the ranks of the group compute the same samples together.
  bool shares_samples(uint32_t group) const;

 private:
  struct Group {
    std::optional<GroupPurpose> described;
    bool sums_activations = false;  // in a forward
    bool routes = false;            // exchanges messages of all with all
  };
  std::vector<Group> groups_;
};

inline const CollectiveShape& shape_of(const StepOperations& step, const StepOperation& operation) {
  return step.shapes[operation.shape].collective;
}
inline const Communication& communication_of(const StepOperations& step, const StepOperation& operation) {
  return step.communications[static_cast<size_t>(operation.communication)];
}

}  // namespace gpucast

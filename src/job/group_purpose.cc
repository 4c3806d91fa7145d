#include "src/job/group_purpose.h"

#include <fmt/format.h>

namespace gpucast {
namespace {

// Of activations. A forward may also average its loss over replicas: a few numbers.
bool sums_activations(const CollectiveShape& shape) {
  constexpr int64_t kFewNumbersBytes = 1024;
  const bool is_sum = shape.kind == CollectiveKind::all_reduce || shape.kind == CollectiveKind::reduce_scatter;
  return is_sum && shape.bytes > kFewNumbersBytes;
}
bool in_forward(const StepOperation& operation) { return operation.phase == Phase::forward || operation.phase == Phase::loss; }

}  // namespace

const char* group_purpose_name(GroupPurpose purpose) {
  switch (purpose) {
    case GroupPurpose::data:
      return "data";
    case GroupPurpose::tensor:
      return "tensor";
    case GroupPurpose::pipeline:
      return "pipeline";
    case GroupPurpose::expert:
      return "expert";
  }
  return "";
}

std::string slice_words(const JobSlice& slice) {
  if (!slice.purpose) return "";
  return fmt::format("{}: {} of {}", group_purpose_name(*slice.purpose), slice.collective.kind, slice.collective.ranks);
}

std::vector<bool> sum_in_forward(const StepOperations& step) {
  std::vector<bool> out(step.groups.size());
  for (const StepOperation& operation : step.operations)
    if (operation.communication >= 0 && in_forward(operation) && sums_activations(shape_of(step, operation)))
      out[communication_of(step, operation).group] = true;
  return out;
}

GroupPurpose purpose_of(CollectiveKind kind, bool sums_in_forward) {
  if (kind == CollectiveKind::messages) return GroupPurpose::pipeline;
  if (kind == CollectiveKind::all_to_all) return GroupPurpose::expert;
  return sums_in_forward ? GroupPurpose::tensor : GroupPurpose::data;
}

}  // namespace gpucast

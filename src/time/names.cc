#include <array>

#include "src/time/duration.h"
#include "src/time/operation.h"

namespace gpucast {
namespace {

// The names in JSON, in the order of the enumeration.
constexpr std::array kKinds = {"gemm", "convolution", "attention", "normalization", "reduction", "elementwise", "indexing",
                               "copy", "memset",      "optimizer", "collective",    "recurrent", "compiled",    "unknown"};
constexpr std::array kPrecisions = {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"};
constexpr std::array kPasses = {"forward", "data_gradient", "weight_gradient", "backward"};
constexpr std::array kCollectives = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                     "all_to_all", "gather",     "scatter",        "messages"};
constexpr std::array kBounds = {"compute", "memory", "launch", "tail", "link"};
static_assert(kKinds.size() == static_cast<size_t>(OperationKind::count_) && kPrecisions.size() == static_cast<size_t>(Precision::count_) &&
              kPasses.size() == static_cast<size_t>(Pass::count_) && kCollectives.size() == static_cast<size_t>(CollectiveKind::count_) &&
              kBounds.size() == static_cast<size_t>(Bound::count_));

template <class Enumeration, size_t size>
Enumeration find(const std::array<const char*, size>& names, std::string_view name) {
  size_t i = 0;
  while (i < size && name != names[i]) ++i;
  return static_cast<Enumeration>(i);
}

}  // namespace

const char* operation_kind_name(OperationKind kind) { return kKinds.at(static_cast<size_t>(kind)); }
OperationKind operation_kind_from_name(std::string_view name) { return find<OperationKind>(kKinds, name); }
const char* precision_name(Precision precision) { return kPrecisions.at(static_cast<size_t>(precision)); }
Precision precision_from_name(std::string_view name) { return find<Precision>(kPrecisions, name); }
const char* pass_name(Pass pass) { return kPasses.at(static_cast<size_t>(pass)); }
Pass pass_from_name(std::string_view name) { return find<Pass>(kPasses, name); }
const char* collective_kind_name(CollectiveKind kind) { return kCollectives.at(static_cast<size_t>(kind)); }
CollectiveKind collective_kind_from_name(std::string_view name) { return find<CollectiveKind>(kCollectives, name); }
const char* bound_name(Bound bound) { return kBounds.at(static_cast<size_t>(bound)); }

}  // namespace gpucast

#include "src/job/group_purpose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

namespace gpucast {
namespace {

// Words of descriptions: device meshes' names (torchtitan, PyTorch's FSDP2), Megatron-Core's groups.
constexpr std::array<std::pair<std::string_view, GroupPurpose>, 18> kWords = {{
    {"dp", GroupPurpose::data},
    {"data", GroupPurpose::data},
    {"fsdp", GroupPurpose::data},
    {"efsdp", GroupPurpose::data},
    {"hsdp", GroupPurpose::data},
    {"replicate", GroupPurpose::data},
    {"shard", GroupPurpose::data},
    {"batch", GroupPurpose::data},
    {"loss", GroupPurpose::data},
    {"tp", GroupPurpose::tensor},
    {"tensor", GroupPurpose::tensor},
    {"pp", GroupPurpose::pipeline},
    {"pipeline", GroupPurpose::pipeline},
    {"cp", GroupPurpose::context},
    {"context", GroupPurpose::context},
    {"embedding", GroupPurpose::pipeline},  // of the first and last stage, which share it
    {"ep", GroupPurpose::expert},
    {"expert", GroupPurpose::expert},
}};

std::set<std::string> words_of(std::string_view description) {
  std::set<std::string> out;
  std::string word;
  for (const char c : description) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      out.insert(std::exchange(word, {}));
    }
  }
  out.insert(word);
  return out;
}

bool in_forward(const StepOperation& operation) { return operation.phase == Phase::forward || operation.phase == Phase::loss; }

// A forward may also sum its loss and metrics over replicas: a few numbers.
bool sums_activations(const StepOperation& operation, const CollectiveShape& shape) {
  constexpr int64_t kFewNumbersBytes = 1024;
  const bool is_sum = shape.kind == CollectiveKind::all_reduce || shape.kind == CollectiveKind::reduce_scatter;
  return is_sum && in_forward(operation) && shape.bytes > kFewNumbersBytes;
}

// What all descriptions that name a purpose agree on.
std::optional<GroupPurpose> agreed_purpose(const std::vector<std::string>& descriptions) {
  std::optional<GroupPurpose> out;
  for (const std::string& description : descriptions) {
    const std::optional<GroupPurpose> one = described_purpose(description);
    if (out && one && *one != *out) return std::nullopt;
    if (one) out = one;
  }
  return out;
}

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
    case GroupPurpose::context:
      return "context";
  }
  return "";
}

std::string slice_words(const JobSlice& slice) {
  if (!slice.purpose) return "";
  return fmt::format("{}: {} of {}", group_purpose_name(*slice.purpose), slice.collective.kind, slice.collective.ranks);
}

std::optional<GroupPurpose> described_purpose(std::string_view description) {
  std::set<GroupPurpose> found;
  const std::set<std::string> words = words_of(description);
  for (const auto& [word, purpose] : kWords)
    if (words.contains(std::string(word))) found.insert(purpose);
  // Experts' gradients, or tensors, in a group of their own; parameters that are sharded over samples and their parts.
  if (found.size() > 1) found.erase(GroupPurpose::expert);
  if (found.contains(GroupPurpose::data)) found.erase(GroupPurpose::context);
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

GroupPurposes::GroupPurposes(const StepOperations& step) {
  for (const CommunicationGroup& group : step.groups) groups_.push_back({agreed_purpose(group.descriptions), false, false});
  for (const StepOperation& operation : step.operations) {
    if (operation.communication < 0) continue;
    const Communication& communication = communication_of(step, operation);
    Group& group = groups_[communication.group];
    group.routes = group.routes || std::ranges::any_of(communication.messages, &Message::routed);
    group.sums_activations = group.sums_activations || sums_activations(operation, shape_of(step, operation));
  }
}

GroupPurpose GroupPurposes::of(uint32_t group, CollectiveKind kind) const {
  if (groups_[group].described) return *groups_[group].described;
  if (kind == CollectiveKind::messages) return groups_[group].routes ? GroupPurpose::expert : GroupPurpose::pipeline;
  if (kind == CollectiveKind::all_to_all) return GroupPurpose::expert;
  return groups_[group].sums_activations ? GroupPurpose::tensor : GroupPurpose::data;
}

bool GroupPurposes::shares_samples(uint32_t group) const {
  const Group& one = groups_[group];
  if (!one.described) return one.sums_activations;
  return *one.described != GroupPurpose::data && *one.described != GroupPurpose::expert;
}

}  // namespace gpucast

#include "src/orchestrate/float_blocks.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "src/attribution/span_tree.h"

namespace gpucast {
namespace {

bool makes_no_floats(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::eq",     "aten::ne",           "aten::lt",       "aten::le",           "aten::gt",          "aten::ge",         "aten::isnan",
      "aten::isinf",  "aten::isfinite",     "aten::isneginf", "aten::logical_not",  "aten::logical_and", "aten::logical_or", "aten::argmax",
      "aten::argmin", "aten::nonzero",      "aten::argsort",  "aten::bitwise_not",  "aten::bitwise_and", "aten::bucketize",  "aten::any",
      "aten::all",    "aten::searchsorted", "aten::isin",     "aten::count_nonzero"};
  return kNames.contains(name);
}

// The first result has floats, the second has indices of eight bytes.
bool makes_indices_too(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"aten::max_pool2d_with_indices",
                                                              "aten::max_pool3d_with_indices",
                                                              "aten::adaptive_max_pool2d",
                                                              "aten::max",
                                                              "aten::min",
                                                              "aten::topk",
                                                              "aten::sort",
                                                              "aten::kthvalue",
                                                              "aten::cummax",
                                                              "aten::cummin"};
  return kNames.contains(name);
}

bool holds_floats(const ProfileFacts& facts, const Sequence& sequence, uint32_t i) {
  const SpanIndex made_in = sequence.blocks[i].span;
  for (SpanIndex at = made_in; at != kNoSpan; at = facts.tree.parent[at]) {
    if (!facts.is_op(at)) break;
    const std::string_view name = facts.name(at);
    const size_t type = name == "aten::empty" || name == "aten::empty_permuted" ? 1 : name == "aten::empty_strided" ? 2 : SIZE_MAX;
    const std::vector<std::string>& values = facts.concrete(at);
    // An empty value means the default type.
    if (type < values.size()) return values[type].empty() || values[type] == std::to_string(kFloatType);
    const std::vector<std::string>& types = facts.types(at);
    if (name == "aten::resize_" && !types.empty()) return types[0] == "float";
    if (type != SIZE_MAX || is_plumbing(name)) {
      if (!types.empty() && (types[0] == "float" || element_bytes(types[0]) > 0)) return types[0] == "float";
      continue;
    }
    if (makes_no_floats(name)) return false;
    if (makes_indices_too(name))
      return i == 0 || sequence.blocks[i - 1].span != at || facts.cpu.blocks[i].size_bytes == facts.cpu.blocks[i - 1].size_bytes;
    return std::find_if(types.begin(), types.end(), [](const std::string& each) { return each == "float" || each == "TensorList"; }) !=
           types.end();
  }
  return sequence.blocks[i].role != Role::none && sequence.blocks[i].role != Role::input;
}

}  // namespace

bool has_statistics(std::string_view operator_name) { return operator_name.find("_norm") != std::string_view::npos; }

bool follows_first_input(std::string_view operator_name) {
  static const std::unordered_set<std::string_view> kNames = {"aten::batch_norm", "aten::instance_norm", "aten::embedding", "aten::dropout",
                                                              "aten::native_batch_norm"};
  return kNames.contains(operator_name);
}

bool names_input_type(const ProfileFacts& facts, SpanIndex op) {
  const SpanIndex parent = facts.tree.parent[op];
  return facts.name(op) == "aten::log_softmax" && parent != kNoSpan && facts.name(parent) == "aten::cross_entropy_loss";
}

bool asks_for_fp32(const ProfileFacts& facts, SpanIndex op) {
  const std::string_view name = facts.name(op);
  const std::vector<std::string>& values = facts.concrete(op);
  return (name == "aten::softmax" || name == "aten::log_softmax") && values.size() > 2 && values[2] == std::to_string(kFloatType) &&
         !names_input_type(facts, op);
}

std::vector<bool> blocks_of_floats(const ProfileFacts& facts, const Sequence& sequence) {
  std::vector<bool> floats(sequence.blocks.size());
  for (uint32_t i = 0; i < sequence.traced; ++i) {
    const GpuBlock& block = sequence.blocks[i];
    floats[i] = block.size_bytes % 4 == 0 && (block.span == kNoSpan ? block.role != Role::none : holds_floats(facts, sequence, i));
  }
  for (size_t i = sequence.traced; i < sequence.blocks.size(); ++i) {
    // Parameters made from their gradients, and the optimizer's lists.
    const GpuBlock& block = sequence.blocks[i];
    floats[i] = block.role == Role::parameter || block.role == Role::optimizer_state || std::string_view(block.rule) == "foreach";
  }
  return floats;
}

}  // namespace gpucast

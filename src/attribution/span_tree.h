// Finds which spans of a profiler trace are inside which others. The trace itself has only their times.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gpucast/profile.h"

namespace gpucast {

using SpanIndex = uint32_t;  // of ProfileTrace::spans
inline constexpr SpanIndex kNoSpan = UINT32_MAX;

struct SpanTree {
  std::vector<SpanIndex> parent;          // of each span: the innermost span of its thread that contains it
  std::vector<SpanIndex> of_memory;       // of each [memory] event: the innermost span of its thread then
  std::vector<bool> has_operator_inside;  // of each span: an operator that computes (see is_plumbing) is a child or deeper
};

// O(n log n).
SpanTree build_span_tree(const ProfileTrace& trace);

// Operators that only make, move or fill tensors, or make views of them: "aten::empty", "aten::to", "aten::view".
bool is_plumbing(std::string_view operator_name);

// Backward's operators: each runs one of autograd's nodes, "autograd::engine::evaluate_function: AddmmBackward0".
inline constexpr std::string_view kAutogradNode = "autograd::engine::evaluate_function: ";
inline bool is_autograd_node(std::string_view operator_name) { return operator_name.starts_with(kAutogradNode); }

}  // namespace gpucast

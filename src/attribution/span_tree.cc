#include "src/attribution/span_tree.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace gpucast {

bool is_plumbing(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"aten::empty",          "aten::empty_strided",
                                                              "aten::empty_like",     "aten::new_empty",
                                                              "aten::resize_",        "aten::resize_as_",
                                                              "aten::zeros",          "aten::zeros_like",
                                                              "aten::new_zeros",      "aten::ones",
                                                              "aten::ones_like",      "aten::full",
                                                              "aten::full_like",      "aten::fill_",
                                                              "aten::zero_",          "aten::to",
                                                              "aten::_to_copy",       "aten::copy_",
                                                              "aten::clone",          "aten::contiguous",
                                                              "aten::view",           "aten::_unsafe_view",
                                                              "aten::reshape",        "aten::_reshape_alias",
                                                              "aten::expand",         "aten::as_strided",
                                                              "aten::as_strided_",    "aten::t",
                                                              "aten::transpose",      "aten::transpose_",
                                                              "aten::permute",        "aten::select",
                                                              "aten::slice",          "aten::narrow",
                                                              "aten::unsqueeze",      "aten::unsqueeze_",
                                                              "aten::squeeze",        "aten::squeeze_",
                                                              "aten::detach",         "detach",
                                                              "aten::detach_",        "detach_",
                                                              "aten::lift_fresh",     "aten::alias",
                                                              "aten::item",           "aten::set_",
                                                              "aten::split",          "aten::split_with_sizes",
                                                              "aten::chunk",          "aten::unbind",
                                                              "aten::flatten",        "aten::unflatten",
                                                              "aten::view_as",        "aten::expand_as",
                                                              "aten::result_type",    "aten::is_nonzero",
                                                              "aten::scalar_tensor",  "aten::_local_scalar_dense",
                                                              "aten::resolve_conj",   "aten::resolve_neg",
                                                              "aten::empty_permuted", "aten::new_empty_strided",
                                                              "aten::new_full",       "aten::new_ones",
                                                              "aten::type_as"};
  return kNames.contains(name);
}

SpanTree build_span_tree(const ProfileTrace& trace) {
  const std::vector<ProfileSpan>& spans = trace.spans;
  SpanTree tree;
  tree.parent.assign(spans.size(), kNoSpan);
  tree.has_operator_inside.assign(spans.size(), false);
  tree.of_memory.assign(trace.memory.size(), kNoSpan);

  // Spans and memory events are in order of time. Each thread has a stack of open spans.
  std::vector<std::vector<SpanIndex>> open(trace.threads.size());
  const auto close_until = [&](std::vector<SpanIndex>& stack, int64_t time_ns) {
    while (!stack.empty() && spans[stack.back()].end_ns <= time_ns) stack.pop_back();
  };
  size_t event = 0;
  const auto place_memory_before = [&](int64_t time_ns) {
    for (; event < trace.memory.size() && trace.memory[event].time_ns < time_ns; ++event) {
      const ProfileMemory& memory = trace.memory[event];
      std::vector<SpanIndex>& stack = open[memory.thread];
      while (!stack.empty() && spans[stack.back()].end_ns < memory.time_ns) stack.pop_back();
      if (!stack.empty()) tree.of_memory[event] = stack.back();
    }
  };
  for (SpanIndex i = 0; i < spans.size(); ++i) {
    place_memory_before(spans[i].begin_ns);
    std::vector<SpanIndex>& stack = open[spans[i].thread];
    close_until(stack, spans[i].begin_ns);
    if (!stack.empty()) tree.parent[i] = stack.back();
    stack.push_back(i);
  }
  place_memory_before(INT64_MAX);

  for (SpanIndex i = static_cast<SpanIndex>(spans.size()); i-- > 0;) {
    const SpanIndex parent = tree.parent[i];
    if (parent == kNoSpan) continue;
    const bool computes = spans[i].kind == SpanKind::op && !is_plumbing(trace.strings.text(spans[i].name));
    if (computes || tree.has_operator_inside[i]) tree.has_operator_inside[parent] = true;
  }
  return tree;
}

}  // namespace gpucast

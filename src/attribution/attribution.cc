#include "src/attribution/attribution.h"

#include <algorithm>

namespace gpucast {

Phase to_phase(MarkedPhase phase) {
  switch (phase) {
    case MarkedPhase::model_to_device:
      return Phase::model_to_device;
    case MarkedPhase::forward:
      return Phase::forward;
    case MarkedPhase::evaluation:
      return Phase::evaluation;
    case MarkedPhase::backward:
      return Phase::backward;
    case MarkedPhase::optimizer_step:
      return Phase::optimizer_step;
    case MarkedPhase::zero_grad:
      return Phase::zero_grad;
    case MarkedPhase::unknown:
      return Phase::other;
  }
  return Phase::other;
}

const char* phase_name(Phase phase) {
  static constexpr const char* kNames[] = {"setup",    "model_to_device", "data",      "forward",    "loss",
                                           "backward", "optimizer_step",  "zero_grad", "evaluation", "other"};
  static_assert(std::size(kNames) == static_cast<size_t>(Phase::count_));
  return kNames[static_cast<size_t>(phase)];
}

const char* category_name(Category category) {
  static constexpr const char* kNames[] = {
      "parameters", "gradients", "optimizer_state", "parameter_copies", "activations",   "intermediate_gradients",
      "inputs",     "buffers",   "temporaries",     "workspaces",       "communication", "unattributed"};
  static_assert(std::size(kNames) == static_cast<size_t>(Category::count_));
  return kNames[static_cast<size_t>(category)];
}

const Span& span_of_event(const Attribution& attribution, uint32_t event) {
  const auto& spans = attribution.spans;
  auto at = std::partition_point(spans.begin(), spans.end(), [&](const Span& span) { return span.end <= event; });
  return at == spans.end() ? spans.back() : *at;
}

CategoryBytes categories_after(const Lifetimes& lifetimes, const Attribution& attribution, uint32_t event) {
  return categories_at(lifetimes, attribution, event + 1);
}

CategoryBytes categories_at(const Lifetimes& lifetimes, const Attribution& attribution, uint32_t position) {
  CategoryBytes bytes = {};
  for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
    const Block& block = lifetimes.blocks[i];
    if (block.alloc_event > position) break;
    if (block.alive_at(position)) bytes[static_cast<size_t>(attribution.blocks[i].category)] += block.size_bytes;
  }
  return bytes;
}

}  // namespace gpucast

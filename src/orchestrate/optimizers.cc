#include "src/orchestrate/optimizers.h"

namespace gpucast {

OptimizerFacts optimizer_at(const ProfileFacts& facts, const PhaseWindow& step) {
  OptimizerFacts out;
  const std::string_view name = facts.name(step.span);
  const size_t hash = name.find('#'), dot = name.rfind('.');
  if (hash != std::string_view::npos && dot != std::string_view::npos && dot > hash) out.name = name.substr(hash + 1, dot - hash - 1);
  for (const OptimizerFacts& known : facts.metadata.optimizers) {
    if (known.name == out.name) return known;
  }
  return out;
}

std::vector<int64_t> updated_parameters(const ProfileFacts& facts, const PhaseWindow& step) {
  // The last operator of the loop on each parameter works in place: addcdiv_, or add_ for plain gradient descent. (With momentum, a mul_
  // makes the buffer before its own add_.)
  const bool descent = optimizer_at(facts, step).name == "SGD";
  std::vector<int64_t> out;
  if (step.span == kNoSpan) return out;
  bool buffer = false;
  for (SpanIndex i = step.span; i < facts.trace.spans.size() && facts.span(i).begin_ns < step.end_ns; ++i) {
    if (!facts.is_op(i) || facts.tree.parent[i] == kNoSpan || facts.is_op(facts.tree.parent[i])) continue;
    const std::string_view name = facts.name(i);
    if (name.substr(0, 14) == "aten::_foreach" && name != "aten::_foreach_add_") return {};
    if (name != (descent ? "aten::add_" : "aten::addcdiv_")) {
      buffer = name == "aten::mul_";
      continue;
    }
    if (descent && buffer) {
      buffer = false;
      continue;
    }
    const DimsList& dims = facts.dims(i);
    const std::vector<std::string>& types = facts.types(i);
    if (dims.inputs.empty() || types.empty()) return {};
    out.push_back(numel(dims.inputs[0]) * element_bytes(types[0]));
  }
  return out;
}

int state_tensors(const OptimizerFacts& o) {
  if (o.name == "Adam" || o.name == "AdamW") return o.amsgrad ? 3 : 2;
  if (o.name == "NAdam" || o.name == "RAdam" || o.name == "Adamax" || o.name == "Adadelta" || o.name == "Rprop") return 2;
  if (o.name == "Adagrad") return 1;
  if (o.name == "RMSprop") return 1 + (o.centered ? 1 : 0) + (o.momentum > 0 ? 1 : 0);
  if (o.name == "SGD") return o.momentum > 0 ? 1 : 0;
  return 0;
}

int foreach_lists(const OptimizerFacts& o, bool decays_gradients) {
  if (o.name == "SGD") return 0;
  if (o.name == "Adam" || o.name == "AdamW" || o.name == "RMSprop") return 1;  // square roots of the second moments
  if (o.name == "Adagrad")
    return decays_gradients ? 1 : 2;  // square roots of the sums; also numerators, unless the decayed gradients are used for them
  return -1;
}

}  // namespace gpucast

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
  if (o.name == "Adagrad") return decays_gradients ? 1 : 2;  // square roots of the sums; numerators, unless the decayed gradients serve
  return -1;
}

}  // namespace gpucast

// On CUDA, PyTorch's optimizers work on all parameters at once ("foreach"), unless the script says otherwise (torch/optim/optimizer.py,
// _default_to_fused_or_foreach). On the CPU they work on one parameter after the other. So the temporaries of one parameter become lists
// with one tensor for each parameter.

#include "src/orchestrate/optimizers.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

struct StepOperators {
  bool works_on_lists = false;           // "_foreach_" or "_fused_": the CPU already works as CUDA would
  std::vector<int64_t> parameter_bytes;  // in the order of the loop; found by addcdiv_, which updates the parameter
  std::vector<int64_t> decayed_bytes;    // the gradients with weight decay
};

StepOperators look_at_step(const ProfileFacts& facts, const PhaseWindow& step) {
  StepOperators out;
  for (SpanIndex i = step.span; i < facts.trace.spans.size() && facts.span(i).begin_ns < step.end_ns; ++i) {
    if (!facts.is_op(i)) continue;
    const std::string_view name = facts.name(i);
    if (name.find("::_fused_") != std::string_view::npos) out.works_on_lists = true;
    // In some releases the loop over parameters counts its steps with _foreach_add_ on numbers.
    if (name.substr(0, 14) == "aten::_foreach" && name != "aten::_foreach_add_") out.works_on_lists = true;
    if (name != "aten::addcdiv_" && name != "aten::add") continue;
    const DimsList& dims = facts.dims(i);
    const std::vector<std::string>& types = facts.types(i);
    if (dims.inputs.empty() || types.empty() || dims.inputs[0].empty()) continue;
    (name == "aten::add" ? out.decayed_bytes : out.parameter_bytes).push_back(numel(dims.inputs[0]) * element_bytes(types[0]));
  }
  return out;
}

}  // namespace

constexpr int64_t kFrees = int64_t{1} << 40;  // after every allocation of the step

void use_foreach(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  int64_t order = 0;
  for (const PhaseWindow& step : facts.phases.optimizer_steps) {
    if (step.span == kNoSpan) continue;
    const OptimizerFacts optimizer = optimizer_at(facts, step);
    const bool as_on_cpu = optimizer.foreach == false || optimizer.fused == true;
    const StepOperators operators = look_at_step(facts, step);
    const int lists = foreach_lists(optimizer, !operators.decayed_bytes.empty());
    if (lists < 0 || as_on_cpu || operators.works_on_lists) continue;
    for (size_t i = 0; i < sequence->traced; ++i) {
      GpuBlock& block = sequence->blocks[i];
      const bool of_step = block.alloc.time_ns >= step.begin_ns && block.alloc.time_ns < step.end_ns && block.free.time_ns <= step.end_ns;
      if (!block.kept() || !of_step || block.role != Role::none) continue;
      block.drop(Fate::optimizer_loop, "foreach");
    }
    const auto add_list = [&](const std::vector<int64_t>& sizes) {
      const auto length = static_cast<int64_t>(sizes.size());
      for (int64_t i = 0; i < length; ++i) {
        // Python frees a list from its end.
        const Moment free{step.end_ns, kFrees + order + length - i};
        sequence->add(sizes[static_cast<size_t>(i)], {step.end_ns, order + i}, free, step.span, "foreach");
      }
      order += length;
    };
    add_list(operators.decayed_bytes);
    for (int list = 0; list < lists; ++list) add_list(operators.parameter_bytes);
  }
}

}  // namespace gpucast

// Gradients (xMem section 3.3, rule 4) live until the optimizer's zero_grad.
//
// A CPU run keeps them equally long if zero_grad sets them to None. A block that is freed earlier, even before the optimizer's step, was
// not a parameter's gradient.

#include <algorithm>

#include "src/orchestrate/rules.h"

namespace gpucast {

void place_gradients(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  const std::vector<PhaseWindow>& clears = facts.phases.zero_grads;
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || block.role != Role::gradient || block.free == kNeverFreed) continue;
    const PhaseWindow* freed_in = facts.phases.window_at(block.free.time_ns);
    if (freed_in != nullptr && freed_in->phase == Phase::zero_grad) continue;
    const auto next =
        std::partition_point(clears.begin(), clears.end(), [&](const PhaseWindow& clear) { return clear.begin_ns <= block.alloc.time_ns; });
    if (next == clears.end() || block.free.time_ns >= next->begin_ns) continue;
    block.free = {next->begin_ns, static_cast<int64_t>(i)};
    block.rule = "gradients";
  }
}

}  // namespace gpucast

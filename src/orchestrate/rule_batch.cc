// A batch (xMem section 3.3, rule 2): its life on the device is limited to an iteration.
//
// The trace itself says when the script lets go of it. What the data loader made and forward uses goes to the device when
// loading ends; from `gpucast profile` the copy to the device is in the trace.

#include "src/orchestrate/rules.h"

namespace gpucast {

void place_batch(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  int64_t order = 0;
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || facts.cpu.blocks[i].before_start()) continue;
    const PhaseWindow* window = facts.phases.window_at(block.alloc.time_ns);
    if (window == nullptr || window->phase != Phase::data) continue;
    if (block.role == Role::none) block.role = Role::input;
    block.alloc = {window->end_ns, ++order};
    block.rule = "batch";
  }
}

}  // namespace gpucast

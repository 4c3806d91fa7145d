// A batch (xMem section 3.3, rule 2) is on the device for one iteration only.
//
// The trace shows when the script frees it. A block that the data loader made and forward uses moves to the device when loading ends. In a
// trace of `gpucast profile` the copy to the device is visible.

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

// Optimizer state (xMem section 3.3, rule 5): of what optimizer.step() allocates, blocks of a parameter's size count; what
// outlives the step is kept for good.

#include <unordered_set>

#include "src/orchestrate/rules.h"

namespace gpucast {

void place_optimizer_state(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence) {
  std::unordered_set<int64_t> sizes;
  for (const GpuBlock& block : sequence->blocks) {
    if (block.kept() && block.role == Role::parameter) sizes.insert(block.size_bytes);
  }
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || facts.cpu.blocks[i].before_start()) continue;
    if (block.role == Role::optimizer_state) {
      block.free = kNeverFreed;
      continue;
    }
    const PhaseWindow* window = facts.phases.window_at(block.alloc.time_ns);
    if (window == nullptr || window->phase != Phase::optimizer_step) continue;
    // Where the rule "foreach" knows the optimizer better, it has the last word.
    if (options.method == "xmem" && !sizes.contains(block.size_bytes)) block.drop(Fate::optimizer_loop, "optimizer");
  }
}

}  // namespace gpucast

// Optimizer state (xMem section 3.3, rule 5): of the blocks that optimizer.step() allocates, those with a parameter's size count. A block
// that outlives the step is never freed.

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
    // If the rule "foreach" knows the optimizer, its result replaces this one.
    if (options.method == "xmem" && !sizes.contains(block.size_bytes)) block.drop(Fate::optimizer_loop, "optimizer");
  }
}

}  // namespace gpucast

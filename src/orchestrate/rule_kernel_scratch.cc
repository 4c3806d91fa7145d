// Scratch memory inside the CPU's kernels: oneDNN's reordered weights and inputs, buffers of one row for each thread.
//
// An operator that runs no other computing operator is a kernel. Blocks that it allocates and frees while it runs are its scratch memory.
// Blocks that outlive it are its results, and CUDA has the same ones. Other rules add CUDA's own scratch memory.

#include "src/orchestrate/rules.h"

namespace gpucast {

void drop_kernel_scratch(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || facts.cpu.blocks[i].before_start()) continue;
    const SpanIndex op = facts.computing_op(block.span);
    if (facts.is_kernel(op) && block.free.time_ns <= facts.span(op).end_ns) block.drop(Fate::kernel_scratch, "kernel_scratch");
  }
}

}  // namespace gpucast

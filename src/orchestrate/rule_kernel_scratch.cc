// Scratch space inside the CPU's kernels: oneDNN's reordered weights and inputs, buffers of one row a thread.
//
// An operator that runs no other computing operator is a kernel; what it allocates and frees within its own time is its
// scratch. What outlives it are its results, and those are the same on CUDA. CUDA's own scratch is added by other rules.

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

// Dropout. The CPU multiplies by a mask of the input's type and keeps it for backward. CUDA's native_dropout keeps a mask of one byte an
// element (ATen/native/Dropout.cpp, is_fused_kernel_acceptable). In place (dropout_) CUDA does the same as the CPU.

#include "src/orchestrate/rules.h"

namespace gpucast {

void use_cuda_dropout(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || facts.cpu.blocks[i].before_start()) continue;
    // empty_like makes the mask directly inside the operator.
    const SpanIndex made_by = facts.named_span_around(block.span, "aten::empty_like");
    if (made_by == kNoSpan) continue;
    const SpanIndex dropout = facts.tree.parent[made_by];
    if (dropout == kNoSpan || facts.name(dropout) != "aten::dropout") continue;
    const DimsList& dims = facts.dims(dropout);
    if (dims.inputs.empty() || dims.inputs[0].empty()) continue;
    block.size_bytes = numel(dims.inputs[0]);
    block.rule = "dropout";
  }
}

}  // namespace gpucast

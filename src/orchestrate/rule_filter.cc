// xMem's filter (section 3.2): a block allocated in an iteration counts if an operator of a module made it and either (i) it is freed while
// that operator runs, or (ii) it is freed after the end of the module that ran the operator.

#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

// The outermost operator that made the block, below its module or autograd node.
SpanIndex operator_of(const ProfileFacts& facts, SpanIndex span, SpanIndex* component) {
  SpanIndex op = kNoSpan;
  for (; span != kNoSpan; span = facts.tree.parent[span]) {
    if (facts.is_node(span) || facts.span(span).kind == SpanKind::module) {
      *component = span;
      return op;
    }
    if (facts.is_op(span)) op = span;
  }
  return op;
}

}  // namespace

void drop_outside_operators(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || block.role != Role::none || facts.cpu.blocks[i].before_start()) continue;
    const PhaseWindow* window = facts.phases.window_at(block.alloc.time_ns);
    if (window == nullptr || (window->phase != Phase::forward && window->phase != Phase::backward)) continue;
    SpanIndex component = kNoSpan;
    const SpanIndex op = operator_of(facts, block.span, &component);
    const bool within = op != kNoSpan && block.free.time_ns <= facts.span(op).end_ns;
    const bool outlives = op != kNoSpan && (component == kNoSpan || block.free.time_ns > facts.span(component).end_ns);
    if (!within && !outlives) block.drop(Fate::outside_operators, "filter");
  }
}

}  // namespace gpucast

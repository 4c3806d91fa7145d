// Predicts another batch size than the traced one. A block either grows in proportion to the batch or stays the same; its size and its
// operator decide. This rule runs last, on the result of the other rules.
//
// Blocks that grow: blocks of forward, loss and backward, and the batch itself, if the traced batch divides their size. Blocks that stay:
// parameters, buffers, gradients, optimizer state, workspaces, and the optimizer's temporaries. In backward, or in an operator whose first
// input does not begin with the batch, blocks with the size of a parameter or buffer stay too.
//
// The rule is most certain for a traced batch that divides no other size of the model (7, 13).

#include <unordered_set>

#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

class Growth {
 public:
  Growth(const ProfileFacts& facts, const Sequence& sequence, int64_t batch) : facts_(facts), batch_(batch) {
    for (const GpuBlock& block : sequence.blocks) {
      if (block.role == Role::parameter || block.role == Role::buffer) fixed_sizes_.insert(block.size_bytes);
    }
  }

  bool grows(const GpuBlock& block) const {
    if (block.role == Role::input) return block.size_bytes % batch_ == 0;
    if (block.role != Role::none || block.size_bytes <= 8 || block.size_bytes % batch_ != 0) return false;
    if (block.alloc.time_ns < facts_.phases.loop_begin_ns) return false;
    const PhaseWindow* window = facts_.phases.window_at(block.alloc.time_ns);
    if (window != nullptr &&
        (window->phase == Phase::optimizer_step || window->phase == Phase::zero_grad || window->phase == Phase::model_to_device)) {
      return false;
    }
    return !fixed_sizes_.contains(block.size_bytes) || (window != nullptr && window->phase == Phase::forward && of_batch(block.span));
  }

 private:
  // Whether the first dimension of the operator's first input is the batch, or a multiple of it.
  bool of_batch(SpanIndex span) const {
    const SpanIndex op = facts_.computing_op(span);
    if (op == kNoSpan || facts_.dims(op).inputs.empty() || facts_.dims(op).inputs[0].size() < 2) return false;
    return facts_.dims(op).inputs[0][0] % batch_ == 0;
  }

  const ProfileFacts& facts_;
  int64_t batch_;
  std::unordered_set<int64_t> fixed_sizes_;
};

}  // namespace

void scale_batch(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence) {
  if (!options.batch_size) return;
  const std::optional<int64_t> traced = traced_batch_size(facts, options);
  if (!traced || *traced == *options.batch_size) return;
  const Growth growth(facts, *sequence, *traced);
  for (GpuBlock& block : sequence->blocks) {
    if (!block.kept() || !growth.grows(block)) continue;
    block.size_bytes = block.size_bytes / *traced * *options.batch_size;
    block.rule = "batch_size";
  }
}

std::optional<int64_t> traced_batch_size(const ProfileFacts& facts, const OrchestrateOptions& options) {
  if (options.traced_batch_size) return options.traced_batch_size;
  if (facts.metadata.batch_size && *facts.metadata.batch_size > 0) return facts.metadata.batch_size;
  if (facts.phases.forwards.empty()) return std::nullopt;
  // The first input in forward with two or more dimensions.
  const PhaseWindow& forward = facts.phases.forwards.front();
  for (SpanIndex i = 0; i < facts.trace.spans.size(); ++i) {
    const ProfileSpan& span = facts.span(i);
    if (span.begin_ns < forward.begin_ns || span.end_ns > forward.end_ns || span.kind != SpanKind::op) continue;
    for (const std::vector<int64_t>& dims : facts.dims(i).inputs) {
      if (dims.size() >= 2) return dims[0];
    }
  }
  return std::nullopt;
}

}  // namespace gpucast

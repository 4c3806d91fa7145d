// Another batch size than the traced one: every block grows as a + b * batch, and which of the two it is, its size and its
// place say. Runs last, on what the other rules made of the trace.
//
// In proportion to the batch: blocks of forward, loss and backward, and the batch itself, whose size divides by the traced
// batch. Not: parameters, buffers, gradients, optimizer state, workspaces; what the optimizer does; and in backward, or with
// an operator whose first input does not begin with the batch, blocks as large as a parameter or buffer.
//
// A batch that divides no size of the model (7, 13) tells best.

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
  // An operator around it has a first input that begins with the batch, or a multiple of it.
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
  // The first input of forward that has two dimensions.
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

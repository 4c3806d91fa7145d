// The paper's rules, and our assumptions where it is silent:
//
// III.A  [memory] events are paired by address in their order (Algorithm 1): pair_blocks() has done this.
// III.B  A layer is a module that runs no other module. Its operators are its outermost ones, by time. Their sequence
//        numbers link the operators of backward to them. A block counts if it is allocated while such an operator runs
//        and still alive when the operator ends. Operators outside layers (for example attention computed in a wrapper)
//        do not count.
// III.C  1 Parameters are the gradients of the first iteration, in the opposite order, and they are never freed. The
//          paper does not say which blocks of backward are gradients: we use those still alive at the optimizer's step.
//          Buffers are not modelled.
//        2 A batch lives from the begin to the end of its iteration. The paper gets its size from the script's data
//          loader; our own rules find it in the trace.
//        3 Gradients are freed at the next zero_grad, and never if there is none.
//        4 Of the blocks that optimizer.step() allocates, those with a parameter's size count. The paper calls all of
//          them permanent. We apply this only to blocks that outlive the step, and let temporaries of that size live as
//          traced. There are two reasons: (5) says that only the first iteration makes permanent blocks, though every
//          iteration makes temporaries; and in the authors' published runs of xMem, which has the same rule, RMSprop
//          needs one parameter size more than SGD, and Adam two. If temporaries were permanent, these would be two and
//          four.
//        5 Two iterations. The paper cuts at profiler.step(), which many scripts do not call. Here an iteration begins
//          with its first batch or forward after the previous optimizer step.

#include "src/orchestrate/method_veritasest.h"

#include <algorithm>
#include <unordered_set>

#include "src/orchestrate/roles.h"

namespace gpucast {
namespace {

constexpr int32_t kIterations = 2;

const PhaseWindow* first_from(const std::vector<PhaseWindow>& list, int64_t time_ns) {
  const auto at = std::partition_point(list.begin(), list.end(), [&](const PhaseWindow& window) { return window.begin_ns < time_ns; });
  return at == list.end() ? nullptr : &*at;
}

// The begin of iteration `number` (from 1); INT64_MAX: there is no such iteration.
int64_t iteration_begin(const ProfilePhases& phases, int32_t number) {
  if (number == 1) return phases.loop_begin_ns;
  if (static_cast<size_t>(number) > phases.step_ends_ns.size() + 1) return INT64_MAX;
  const int64_t after_ns = phases.step_ends_ns[static_cast<size_t>(number) - 2];
  int64_t begin_ns = INT64_MAX;
  for (const auto* list : {&phases.data, &phases.forwards}) {
    const PhaseWindow* first = first_from(*list, after_ns);
    if (first != nullptr) begin_ns = std::min(begin_ns, first->begin_ns);
  }
  return begin_ns;
}

// For each span: the outermost operator around it (or the span itself), and whether that operator belongs to a layer.
class Layers {
 public:
  explicit Layers(const ProfileFacts& facts) {
    const size_t count = facts.trace.spans.size();
    root_.assign(count, kNoSpan);
    linked_.assign(count, false);
    std::vector<SpanIndex> module(count, kNoSpan);
    std::vector<bool> wrapper(count, false);
    // Spans are ordered by time, outer ones first.
    for (SpanIndex i = 0; i < count; ++i) {
      const SpanIndex parent = facts.tree.parent[i];
      if (parent != kNoSpan) {
        root_[i] = root_[parent];
        module[i] = module[parent];
      }
      if (facts.is_op(i) && root_[i] == kNoSpan) root_[i] = i;
      if (facts.span(i).kind == SpanKind::module) {
        if (module[i] != kNoSpan) wrapper[module[i]] = true;
        module[i] = i;
      }
    }
    std::unordered_set<int64_t> numbers;
    for (SpanIndex i = 0; i < count; ++i) {
      if (!facts.is_op(i) || module[i] == kNoSpan || wrapper[module[i]] || in_backward(facts, i)) continue;
      linked_[root_[i]] = true;
      if (facts.span(i).sequence_number >= 0) numbers.insert(facts.span(i).sequence_number);
    }
    for (SpanIndex i = 0; i < count; ++i) {
      if (in_backward(facts, i) && numbers.contains(facts.span(i).sequence_number)) linked_[root_[i]] = true;
    }
  }

  // The layer's operator that allocated a block; kNoSpan: none.
  SpanIndex operator_of(SpanIndex span) const {
    return span == kNoSpan || root_[span] == kNoSpan || !linked_[root_[span]] ? kNoSpan : root_[span];
  }

 private:
  bool in_backward(const ProfileFacts& facts, SpanIndex span) const { return facts.is_node(root_[span]); }

  std::vector<SpanIndex> root_;
  std::vector<bool> linked_;
};

// Assigns the trace's blocks to layers. From here on, roles have this method's meaning.
void link_layers(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  const ProfilePhases& phases = facts.phases;
  const Layers layers(facts);
  const int64_t begin_ns = iteration_begin(phases, 1), end_ns = iteration_begin(phases, kIterations + 1);
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    const bool batch = block.kept() && block.role == Role::input;
    block.role = Role::none;
    if (facts.cpu.blocks[i].before_start()) {
      block.drop(Fate::before_trace, "layers");
      continue;
    }
    if (block.alloc.time_ns < begin_ns || block.alloc.time_ns >= end_ns) {
      block.drop(block.alloc.time_ns < begin_ns ? Fate::host : Fate::not_modelled, "layers");
      continue;
    }
    const PhaseWindow* window = phases.window_at(block.alloc.time_ns);
    if (batch) {
      block.role = Role::input;
      continue;
    }
    if (window != nullptr && window->phase == Phase::optimizer_step) continue;
    const SpanIndex op = layers.operator_of(block.span);
    if (op == kNoSpan) {
      block.drop(Fate::outside_operators, "layers");
    } else if (block.free.time_ns <= facts.span(op).end_ns) {
      block.drop(Fate::kernel_scratch, "layers");
    } else if (window != nullptr && window->phase == Phase::backward) {
      const PhaseWindow* step = first_from(phases.optimizer_steps, window->end_ns);
      if (block.free.time_ns > (step != nullptr ? step->begin_ns : window->end_ns)) block.role = Role::gradient;
    }
  }
}

void copy_gradients(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  add_before_trace(parameters_from_gradients(facts, *sequence), sequence);
}

void keep_batch_for_iteration(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || block.role != Role::input) continue;
    const int64_t second_ns = iteration_begin(facts.phases, 2);
    const bool first = block.alloc.time_ns < second_ns;
    block.alloc = {first ? facts.phases.loop_begin_ns : second_ns, static_cast<int64_t>(i)};
    const int64_t end_ns = first ? second_ns : iteration_begin(facts.phases, 3);
    block.free = end_ns == INT64_MAX ? kNeverFreed : Moment{end_ns, -1};
    block.rule = "batch";
  }
}

void keep_gradients_until_zero_grad(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept() || block.role != Role::gradient) continue;
    const PhaseWindow* clear = first_from(facts.phases.zero_grads, block.alloc.time_ns);
    block.free = clear == nullptr ? kNeverFreed : Moment{clear->begin_ns, static_cast<int64_t>(i)};
    block.rule = "gradients";
  }
}

void keep_optimizer_blocks(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  std::unordered_set<int64_t> sizes;
  for (const GpuBlock& block : sequence->blocks) {
    if (block.kept() && block.role == Role::parameter) sizes.insert(block.size_bytes);
  }
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept()) continue;
    const PhaseWindow* window = facts.phases.window_at(block.alloc.time_ns);
    if (window == nullptr || window->phase != Phase::optimizer_step) continue;
    if (!sizes.contains(block.size_bytes)) {
      block.drop(Fate::optimizer_loop, "optimizer");
    } else if (block.free.time_ns > window->end_ns) {
      block.role = Role::optimizer_state;
      block.free = kNeverFreed;
      block.rule = "optimizer";
    }
  }
}

}  // namespace

const std::vector<Rule>& veritasest_rules() {
  static const std::vector<Rule> kRules = {
      // Needed only to find the batches.
      {"host", "data that stays in the host's memory is left out", true, drop_host_data},
      {"batch_blocks", "which blocks are batches", true, place_batch},
      {"layers", "two iterations: blocks that outlive a layer's operator", true, link_layers},
      {"model", "parameters are the gradients in the opposite order", true, copy_gradients},
      {"batch", "a batch lives as long as its iteration", true, keep_batch_for_iteration},
      {"gradients", "gradients live until zero_grad", true, keep_gradients_until_zero_grad},
      {"optimizer", "optimizer blocks with a parameter's size are kept", true, keep_optimizer_blocks},
  };
  return kRules;
}

}  // namespace gpucast

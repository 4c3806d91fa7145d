#include "src/work/step_inputs.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "src/base/bounded.h"

namespace gpucast {
namespace {

struct StepInput {
  int64_t sequence = 0;  // of its mark
  int64_t samples = 0, tokens = 0;
};

// The backwards and optimizer steps that begin in the observed step.
struct StepPhases {
  size_t backwards = 0, optimizer_steps = 0;
  std::vector<std::pair<int64_t, int>> open_backwards;  // from the mark with this sequence number on, this many are open

  bool in_backward(int64_t sequence) const {
    const auto next = std::ranges::upper_bound(open_backwards, sequence, {}, &std::pair<int64_t, int>::first);
    return next != open_backwards.begin() && std::prev(next)->second > 0;
  }
};

StepPhases phases_of_step(const Trace& trace) {
  std::vector<const Mark*> marks;
  for (const Mark& mark : trace.marks) {
    const bool inside = mark.sequence >= trace.observed.first_mark && mark.sequence < trace.observed.last_mark;
    if (inside && (mark.kind == MarkKind::phase_begin || mark.kind == MarkKind::phase_end)) marks.push_back(&mark);
  }
  std::stable_sort(marks.begin(), marks.end(), [](const Mark* a, const Mark* b) { return a->sequence < b->sequence; });
  StepPhases out;
  int open = 0;
  for (const Mark* mark : marks) {
    const bool begin = mark->kind == MarkKind::phase_begin;
    if (begin && mark->phase == MarkedPhase::optimizer_step) ++out.optimizer_steps;
    if (mark->phase != MarkedPhase::backward) continue;
    if (begin && open == 0) ++out.backwards;  // one inside another is the same pass
    open += begin ? 1 : -1;
    out.open_backwards.emplace_back(mark->sequence, open);
  }
  return out;
}

// Inputs of the step's forwards. A forward that a backward computes again does not count.
std::vector<StepInput> inputs_of_forwards(const Trace& trace, const StepPhases& phases) {
  std::vector<StepInput> out;
  for (const TensorMark& tensor : trace.tensors) {
    if (tensor.kind != TensorKind::input || tensor.sequence < trace.observed.first_mark || tensor.sequence >= trace.observed.last_mark)
      continue;
    const std::vector<int64_t>& shape = tensor.shape;
    if (shape.empty() || phases.in_backward(tensor.sequence)) continue;
    StepInput input{tensor.sequence, shape[0], 0};
    if (shape.size() == 2 && trace.strings.text(tensor.dtype) == "int64") input.tokens = bounded_product({input.samples, shape[1]});
    out.push_back(input);
  }
  std::stable_sort(out.begin(), out.end(), [](const StepInput& a, const StepInput& b) { return a.sequence < b.sequence; });
  return out;
}

}  // namespace

StepInputs step_inputs(const Trace& trace) {
  const StepPhases phases = phases_of_step(trace);
  const std::vector<StepInput> inputs = inputs_of_forwards(trace, phases);
  std::vector<int64_t> forwards;  // the sequence numbers of their marks
  for (const StepInput& input : inputs)
    if (forwards.empty() || forwards.back() != input.sequence) forwards.push_back(input.sequence);
  // Which forward belongs to which backward is known only where each backward has the same number of forwards.
  const bool accumulates = phases.optimizer_steps <= 1 && phases.backwards > 1 && forwards.size() % phases.backwards == 0;
  const size_t cycles = accumulates ? phases.backwards : 1;
  StepInputs out;
  for (size_t cycle = 0; cycle < cycles; ++cycle) {
    const size_t first = cycle * forwards.size() / cycles, next = (cycle + 1) * forwards.size() / cycles;
    int64_t samples = 0, tokens = 0;
    for (const StepInput& input : inputs) {
      if (first == next || input.sequence < forwards[first] || input.sequence > forwards[next - 1]) continue;
      if (samples == 0) samples = input.samples;
      if (tokens == 0) tokens = input.tokens;
    }
    out.samples += samples;
    out.tokens += tokens;
  }
  return out;
}

}  // namespace gpucast

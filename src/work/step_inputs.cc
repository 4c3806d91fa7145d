#include "src/work/step_inputs.h"

#include <algorithm>
#include <vector>

#include "src/base/bounded.h"

namespace gpucast {
namespace {

struct Input {
  int64_t sequence = 0;  // of the mark it came with
  int64_t samples = 0, tokens = 0;
};

// Inputs of the step's forwards, but not of those that are computed again inside of a backward.
std::vector<Input> inputs_of_forwards(const Trace& trace, const std::vector<const Mark*>& marks) {
  std::vector<Input> out;
  for (const TensorMark& tensor : trace.tensors) {
    if (tensor.kind != TensorKind::input || tensor.sequence < trace.observed.first_mark || tensor.sequence >= trace.observed.last_mark)
      continue;
    int backwards = 0;
    for (const Mark* mark : marks) {
      if (mark->sequence > tensor.sequence) break;
      if (mark->phase != MarkedPhase::backward) continue;
      backwards += mark->kind == MarkKind::phase_begin ? 1 : mark->kind == MarkKind::phase_end ? -1 : 0;
    }
    if (backwards > 0) continue;
    const std::vector<int64_t>& shape = tensor.shape;
    if (shape.empty()) continue;
    Input input{tensor.sequence, shape[0], 0};
    if (shape.size() == 2 && trace.strings.text(tensor.dtype) == "int64") input.tokens = bounded_product({input.samples, shape[1]});
    out.push_back(input);
  }
  std::stable_sort(out.begin(), out.end(), [](const Input& a, const Input& b) { return a.sequence < b.sequence; });
  return out;
}

}  // namespace

StepInputs step_inputs(const Trace& trace) {
  std::vector<const Mark*> phases;  // begins and ends within the step, in their order
  for (const Mark& mark : trace.marks) {
    const bool inside = mark.sequence >= trace.observed.first_mark && mark.sequence < trace.observed.last_mark;
    if (inside && (mark.kind == MarkKind::phase_begin || mark.kind == MarkKind::phase_end)) phases.push_back(&mark);
  }
  std::stable_sort(phases.begin(), phases.end(), [](const Mark* a, const Mark* b) { return a->sequence < b->sequence; });
  const auto begun = [&](MarkedPhase phase) {
    return static_cast<size_t>(std::count_if(
        phases.begin(), phases.end(), [phase](const Mark* mark) { return mark->kind == MarkKind::phase_begin && mark->phase == phase; }));
  };
  const std::vector<Input> inputs = inputs_of_forwards(trace, phases);
  std::vector<int64_t> forwards;  // marks that inputs came with
  for (const Input& input : inputs)
    if (forwards.empty() || forwards.back() != input.sequence) forwards.push_back(input.sequence);
  const size_t backwards = begun(MarkedPhase::backward);
  // Forwards share backwards evenly, or nobody knows which ones go together.
  const bool accumulates = begun(MarkedPhase::optimizer_step) <= 1 && backwards > 1 && forwards.size() % backwards == 0;
  const size_t cycles = accumulates ? backwards : 1;
  StepInputs out;
  for (size_t cycle = 0; cycle < cycles; ++cycle) {
    const size_t first = cycle * forwards.size() / cycles, next = (cycle + 1) * forwards.size() / cycles;
    int64_t samples = 0, tokens = 0;
    for (const Input& input : inputs) {
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

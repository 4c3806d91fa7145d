#include "src/work/step_inputs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
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

// Marks with sequence numbers from `first` to before `last`.
struct MarkRange {
  int64_t first = 0, last = 0;
  bool contains(int64_t sequence) const { return sequence >= first && sequence < last; }
};

StepPhases phases_of_step(const Trace& trace, const MarkRange& step) {
  std::vector<const Mark*> marks;
  for (const Mark& mark : trace.marks) {
    if (step.contains(mark.sequence) && (mark.kind == MarkKind::phase_begin || mark.kind == MarkKind::phase_end)) marks.push_back(&mark);
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
std::vector<StepInput> inputs_of_forwards(const Trace& trace, const MarkRange& step, const StepPhases& phases) {
  std::vector<StepInput> out;
  for (const TensorMark& tensor : trace.tensors) {
    if (tensor.kind != TensorKind::input || !step.contains(tensor.sequence)) continue;
    const std::vector<int64_t>& shape = tensor.shape;
    if (shape.empty() || phases.in_backward(tensor.sequence)) continue;
    StepInput input{tensor.sequence, shape[0], 0};
    if (shape.size() == 2 && trace.strings.text(tensor.dtype) == "int64") input.tokens = bounded_product({input.samples, shape[1]});
    out.push_back(input);
  }
  std::stable_sort(out.begin(), out.end(), [](const StepInput& a, const StepInput& b) { return a.sequence < b.sequence; });
  return out;
}

// The batch of one forward: the first of its inputs that shows it.
StepInputs batch_of(const std::vector<StepInput>& inputs, int64_t first, int64_t last) {
  StepInputs out;
  for (const StepInput& input : inputs) {
    if (input.sequence < first || input.sequence > last) continue;
    if (out.samples == 0) out.samples = input.samples;
    if (out.tokens == 0) out.tokens = input.tokens;
  }
  return out;
}

bool exchanges_messages(const Trace& trace) {
  return std::ranges::any_of(trace.observed.work, [&](const Work& work) {
    const std::string_view name = trace.strings.text(work.name);
    return name == "ncclSend" || name == "ncclRecv";
  });
}

// A stage of a pipeline gets each micro-batch once; a rank may have several stages, which are modules of their own.
StepInputs inputs_of_stages(const Trace& trace, const std::vector<StepInput>& inputs, const std::vector<int64_t>& forwards) {
  std::map<int64_t, ModuleId> modules;  // by the sequence number of the mark that begins them
  for (const Mark& mark : trace.marks)
    if (mark.kind == MarkKind::module_begin) modules[mark.sequence] = mark.module;
  std::map<ModuleId, StepInputs> stages;
  StepInputs out;
  for (const int64_t forward : forwards) {
    const auto module = modules.upper_bound(forward);  // a forward's inputs are marked right before it begins
    StepInputs& stage = stages[module == modules.end() ? ModuleId() : module->second];
    const StepInputs batch = batch_of(inputs, forward, forward);
    stage.samples += batch.samples;
    stage.tokens += batch.tokens;
    out.samples = std::max(out.samples, stage.samples);
    out.tokens = std::max(out.tokens, stage.tokens);
  }
  return out;
}

StepInputs inputs_between(const Trace& trace, const MarkRange& step) {
  const StepPhases phases = phases_of_step(trace, step);
  const std::vector<StepInput> inputs = inputs_of_forwards(trace, step, phases);
  std::vector<int64_t> forwards;  // the sequence numbers of their marks
  for (const StepInput& input : inputs)
    if (forwards.empty() || forwards.back() != input.sequence) forwards.push_back(input.sequence);
  if (exchanges_messages(trace)) return inputs_of_stages(trace, inputs, forwards);
  // Which forward belongs to which backward is known only where each backward has the same number of forwards.
  const bool accumulates = phases.optimizer_steps <= 1 && phases.backwards > 1 && forwards.size() % phases.backwards == 0;
  const size_t cycles = accumulates ? phases.backwards : 1;
  StepInputs out;
  for (size_t cycle = 0; cycle < cycles && !forwards.empty(); ++cycle) {
    const size_t first = cycle * forwards.size() / cycles, next = (cycle + 1) * forwards.size() / cycles;
    if (first == next) continue;
    const StepInputs batch = batch_of(inputs, forwards[first], forwards[next - 1]);
    out.samples += batch.samples;
    out.tokens += batch.tokens;
  }
  return out;
}

// The step in which the script captured the first graph that the observed step launches; empty if it launches none.
MarkRange step_of_capture(const Trace& trace) {
  int64_t captured_ns = -1;
  for (const Work& work : trace.observed.work)
    if (work.captured_ns >= 0 && (captured_ns < 0 || work.captured_ns < captured_ns)) captured_ns = work.captured_ns;
  MarkRange out;
  if (captured_ns < 0) return out;
  const int64_t captured_us = (trace.observed.clock_unix_ns + captured_ns) / 1000;
  for (const Mark& mark : trace.marks) {
    if (mark.kind != MarkKind::step) continue;
    if (mark.time_us <= captured_us) out.first = std::max(out.first, mark.sequence);
    if (mark.time_us > captured_us && (out.last == 0 || mark.sequence < out.last)) out.last = mark.sequence;
  }
  return out;
}

}  // namespace

StepInputs step_inputs(const Trace& trace) {
  const StepInputs inputs = inputs_between(trace, {trace.observed.first_mark, trace.observed.last_mark});
  return inputs.samples != 0 ? inputs : inputs_between(trace, step_of_capture(trace));
}

}  // namespace gpucast

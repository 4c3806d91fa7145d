// Parameters and buffers (xMem section 3.3, rule 1) are on the device from the model's move until the end.
//
// A trace that began after the model was made does not have them. Then their gradients give their sizes. If the optimizer updates one
// parameter after the other, it also gives their order. The kind of the optimizer gives the size of its state.

#include <algorithm>
#include <numeric>

#include "src/orchestrate/optimizers.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

int64_t bytes_of(const std::vector<GpuBlock>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), int64_t{0},
                         [](int64_t sum, const GpuBlock& block) { return sum + block.size_bytes; });
}

void in_order_of_optimizer(const std::vector<int64_t>& sizes, std::vector<GpuBlock>* parameters) {
  const int64_t bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (parameters->empty() || bytes < bytes_of(*parameters) * 9 / 10) return;  // for example one of several optimizers
  const GpuBlock like = parameters->front();
  parameters->assign(sizes.size(), like);
  for (size_t i = 0; i < sizes.size(); ++i) (*parameters)[i].size_bytes = sizes[i];
}

}  // namespace

std::vector<GpuBlock> parameters_from_gradients(const ProfileFacts& facts, const Sequence& sequence) {
  std::vector<GpuBlock> made;
  std::optional<int32_t> first_step;
  for (size_t i = 0; i < sequence.traced; ++i) {
    const GpuBlock& gradient = sequence.blocks[i];
    if (!gradient.kept() || gradient.role != Role::gradient || facts.cpu.blocks[i].before_start()) continue;
    const int32_t step = facts.phases.step_at(gradient.alloc.time_ns);
    if (step != first_step.value_or(step)) break;  // blocks are in the order of allocation
    first_step = step;
    GpuBlock parameter;
    parameter.size_bytes = gradient.size_bytes;
    parameter.role = Role::parameter;
    parameter.rule = "model";
    made.push_back(parameter);
  }
  std::reverse(made.begin(), made.end());
  return made;
}

void add_before_trace(std::vector<GpuBlock> blocks, Sequence* sequence) {
  // Before the blocks that were already allocated when the trace began.
  int64_t order = INT64_MIN / 2;
  for (GpuBlock& block : blocks) block.alloc = {kBeforeAll.time_ns, order++};
  sequence->blocks.insert(sequence->blocks.end(), blocks.begin(), blocks.end());
}

void place_model(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  bool known = false, state_made = false;
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (!block.kept()) continue;
    state_made = state_made || block.role == Role::optimizer_state;
    if (block.role == Role::parameter || block.role == Role::buffer) {
      known = known || block.role == Role::parameter;
      if (block.free.time_ns >= facts.phases.loop_begin_ns && block.alloc.time_ns < facts.phases.loop_begin_ns) block.free = kNeverFreed;
    }
  }
  if (known) return;
  std::vector<GpuBlock> made = parameters_from_gradients(facts, *sequence);
  if (!facts.phases.optimizer_steps.empty()) in_order_of_optimizer(updated_parameters(facts, facts.phases.optimizer_steps.front()), &made);
  const size_t parameters = made.size();
  if (!state_made && !facts.phases.optimizer_steps.empty()) {
    const int copies = state_tensors(optimizer_at(facts, facts.phases.optimizer_steps.front()));
    for (size_t i = 0; i < parameters; ++i) {
      GpuBlock state = made[i];
      state.role = Role::optimizer_state;
      for (int copy = 0; copy < copies; ++copy) made.push_back(state);
    }
  }
  add_before_trace(std::move(made), sequence);
}

}  // namespace gpucast

// Blocks, marks and tensors -> phase, step, module and category of every block.
//
// Every block starts unattributed and each rule below may explain it; nothing is counted twice and nothing is lost, so the
// categories add up to the allocated bytes after every event. That is the invariant this stage is tested by.
//
// Categories, the first that holds:
//   parameters, gradients, optimizer_state, buffers, inputs   the capture layer saw a tensor of this kind in the block
//   parameter_copies  likewise: copies of trained parameters that no optimizer trains (EMA, SWA, target networks)
//   workspaces    the block was handed to a library as scratch space
//   inputs        a host-to-device copy filled the block, outside of model_to_device, forward, backward and optimizer_step
//   communication  code of parallel training allocated it (communication.h)
//   activations   allocated in forward or loss, and alive when the next backward begins (without any backward: when the outermost
//                 forward ends; in a run cut short: when it was cut); or recomputed: allocated in a forward inside backward, and
//                 alive when that forward ends; or what an evaluation returns
//   intermediate_gradients   allocated in backward, and alive when autograd's next node begins or that backward ends: what one
//                 node hands to another
//   temporaries   any other block of forward, loss, backward, optimizer_step or zero_grad, and any other block that was freed
//   unattributed  what is left: it outlives the capture and nothing explains it. Of a memory snapshot all, for it has no marks
//
// Buffers (a module's tensors that are no parameters, such as batch norm's running mean) are a category of their own, so
// that `parameters` is exactly what the optimizer trains.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/trace.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {

enum class Phase : uint8_t {
  setup,  // before the first model_to_device or forward
  model_to_device,
  data,  // inside the loop, before forward: the batch goes to the device
  forward,
  loss,  // between the outermost forward's end and backward
  backward,
  optimizer_step,
  zero_grad,
  evaluation,  // a forward without gradients of a model in eval mode, and what follows it
  other,
  count_,
};
const char* phase_name(Phase phase);
Phase to_phase(MarkedPhase phase);

enum class Category : uint8_t {
  parameters,
  gradients,
  optimizer_state,
  parameter_copies,
  activations,
  intermediate_gradients,
  inputs,
  buffers,
  temporaries,
  workspaces,
  communication,
  unattributed,
  count_,
};
const char* category_name(Category category);

// A stretch of the history [begin, end) in positions (see lifetime.h) with one phase, step and module. Spans tile the history.
struct Span {
  uint32_t begin = 0, end = 0;
  Phase phase = Phase::setup;
  int32_t step = 0;  // 0: before the first step's data; n: in step n
  ModuleId module;   // innermost
  StringId node;     // backward: the node of autograd that works, "ConvolutionBackward0"
};

using OperatorId = Id<struct OperatorTag>;
using TensorId = Id<struct TensorMarkTag>;

struct BlockAttribution {
  Category category = Category::unattributed;
  Phase phase = Phase::setup;
  int32_t step = 0;
  ModuleId module;
  OperatorId op;    // of Attribution::operators
  TensorId tensor;  // of Trace::tensors: what named the block
};

struct Attribution {
  std::vector<Span> spans;
  std::vector<BlockAttribution> blocks;  // as Lifetimes::blocks
  std::vector<std::string> operators;    // see operators.h
  std::vector<uint32_t> forward_ends;    // positions where an outermost forward ended, ascending
  int32_t steps_completed = 0;
  bool saw_backward = false;
};

// Adds what does not fit together to trace.problems.
Attribution attribute(const Trace& trace, const Lifetimes& lifetimes, Problems* problems);

// In the order of trace.marks: each mark's position in the history (see lifetime.h).
std::vector<uint32_t> mark_positions(const Trace& trace);

// The span that holds event `event`.
const Span& span_of_event(const Attribution& attribution, uint32_t event);

using CategoryBytes = std::array<int64_t, static_cast<size_t>(Category::count_)>;
// Allocated bytes by category after event `event`. Their sum is lifetimes.allocated[event].
CategoryBytes categories_after(const Lifetimes& lifetimes, const Attribution& attribution, uint32_t event);
// The same at a position (see lifetime.h): their sum is lifetimes.allocated_at(position).
CategoryBytes categories_at(const Lifetimes& lifetimes, const Attribution& attribution, uint32_t position);

}  // namespace gpucast

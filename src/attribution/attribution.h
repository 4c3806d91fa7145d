// The phase, step, module and category of every block of a history. attribute.h makes them.
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
  data,  // inside the loop, before forward: the batch is copied to the device
  forward,
  loss,  // between the outermost forward's end and backward
  backward,
  optimizer_step,
  zero_grad,
  evaluation,  // a forward without gradients of a model in eval mode, and the code after it
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

// A part [begin, end) of the history, in positions (see lifetime.h), with one phase, step and module. Spans cover the history without gaps.
struct Span {
  uint32_t begin = 0, end = 0;
  Phase phase = Phase::setup;
  int32_t step = 0;  // 0: before the first step's data; n: in step n
  ModuleId module;   // innermost
  StringId node;     // backward: the running node of autograd, "ConvolutionBackward0"
};

using OperatorId = Id<struct OperatorTag>;
using TensorId = Id<struct TensorMarkTag>;

struct BlockAttribution {
  Category category = Category::unattributed;
  Phase phase = Phase::setup;
  int32_t step = 0;
  ModuleId module;
  OperatorId op;    // index in Attribution::operators
  TensorId tensor;  // index in Trace::tensors: the tensor that gave the block its name
};

struct Attribution {
  std::vector<Span> spans;
  std::vector<BlockAttribution> blocks;  // one for each of Lifetimes::blocks
  std::vector<std::string> operators;    // see operators.h
  std::vector<uint32_t> forward_ends;    // positions where an outermost forward ended, ascending
  int32_t steps_completed = 0;
  bool saw_backward = false;
};

// The span that contains event `event`.
const Span& span_of_event(const Attribution& attribution, uint32_t event);

using CategoryBytes = std::array<int64_t, static_cast<size_t>(Category::count_)>;
// Allocated bytes by category after event `event`. Their sum is lifetimes.allocated[event].
CategoryBytes categories_after(const Lifetimes& lifetimes, const Attribution& attribution, uint32_t event);
// The same at a position (see lifetime.h): their sum is lifetimes.allocated_at(position).
CategoryBytes categories_at(const Lifetimes& lifetimes, const Attribution& attribution, uint32_t position);

}  // namespace gpucast

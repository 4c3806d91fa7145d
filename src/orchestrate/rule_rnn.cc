// nn.LSTM, nn.GRU and nn.RNN. The CPU computes step by step, or calls oneDNN for a layer. cuDNN runs all layers at once
// (ATen/native/cudnn/RNN.cpp of PyTorch) and allocates:
//   - one block for all weights, after the move to the device, which replaces the single ones; one for all their gradients
//   - in forward the output and the last states, a workspace, and a reserve that backward reads
//   - in backward the gradients of the input and of the first states, and the workspace twice: for data and for weights
//   - copies of input and gradient if the batch is the first dimension
//   - with dropout the states of random generators, once
//
// NVIDIA does not publish the sizes of workspace and reserve: these are the virtual GPU's models (src/vgpu/libs/cudnn_workspace.cc).
// Packed sequences and projections stay as on the CPU.

#include <algorithm>

#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

constexpr int64_t kRandomStateBytes = 48;  // for one generator; each thread has one

struct Recurrent {
  int64_t gates = 1, steps = 0, batch = 0, input = 0, hidden = 0, layers = 1, directions = 1, element_bytes = 0;
  bool cell_state = false, batch_first = false, dropout = false;
  std::vector<int64_t> weight_bytes;  // in the order of the module's parameters

  int64_t input_bytes() const { return steps * batch * input * element_bytes; }
  int64_t output_bytes() const { return steps * batch * directions * hidden * element_bytes; }
  int64_t state_bytes() const { return layers * directions * batch * hidden * element_bytes; }
  int64_t workspace_bytes() const { return output_bytes() * gates; }
  int64_t reserve_bytes() const {
    const int64_t kept = gates + (gates >= 3 ? 1 : 0);
    return output_bytes() * (layers * kept + (layers - 1) * directions * (dropout ? 2 : 1));
  }
  int64_t all_weights_bytes() const {
    int64_t sum = 0;
    for (const int64_t bytes : weight_bytes) sum += bytes;
    return sum;
  }
};

// aten::lstm(input, (h, c), weights, has_biases, layers, dropout, train, bidirectional, batch_first); the others have no c.
bool shape_of(const ProfileFacts& facts, SpanIndex op, Recurrent* out) {
  const std::string_view name = facts.name(op);
  out->cell_state = name == "aten::lstm";
  out->gates = out->cell_state ? 4 : name == "aten::gru" ? 3 : 1;
  if (out->gates == 1 && name != "aten::rnn_tanh" && name != "aten::rnn_relu") return false;
  const DimsList& dims = facts.dims(op);
  const auto& concrete = facts.concrete(op);
  if (dims.inputs.size() < 9 || concrete.size() < 9 || dims.inputs[0].size() != 3 || concrete[6] != "True") return false;
  const auto& weights = dims.lists[2];
  std::vector<int64_t> state = dims.inputs[1];
  if (out->cell_state) {
    if (dims.lists[1].size() != 2 || dims.lists[1][0] != dims.lists[1][1]) return false;
    state = dims.lists[1][0];
  }
  if (state.size() != 3 || weights.empty()) return false;
  out->layers = std::max<int64_t>(1, std::atoll(concrete[4].c_str()));
  out->directions = concrete[7] == "True" ? 2 : 1;
  out->batch_first = concrete[8] == "True";
  out->dropout = out->layers > 1 && std::atof(concrete[5].c_str()) > 0;
  out->steps = dims.inputs[0][out->batch_first ? 1 : 0];
  out->batch = dims.inputs[0][out->batch_first ? 0 : 1];
  out->input = dims.inputs[0][2];
  out->hidden = state[2];
  const auto& types = facts.types(op);
  out->element_bytes = types.empty() || types[0].empty() ? 4 : element_bytes(types[0]);
  for (const auto& weight : weights) out->weight_bytes.push_back(numel(weight) * out->element_bytes);
  return out->steps > 0 && out->batch > 0 && out->hidden > 0 && out->element_bytes > 0;
}

class RecurrentRule {
 public:
  RecurrentRule(const ProfileFacts& facts, Sequence* sequence) : facts_(facts), sequence_(*sequence) {}

  void apply() {
    for (SpanIndex i = 0; i < facts_.trace.spans.size(); ++i) {
      Recurrent shape;
      if (facts_.is_op(i) && shape_of(facts_, i, &shape)) replace_layers(i, shape);
    }
    sequence_.set_other_kernels(std::move(other_kernels_));
  }

 private:
  void drop(uint32_t i) { sequence_.blocks[i].drop(Fate::other_kernel, "rnn"); }
  void add(int64_t bytes, Moment alloc, Moment free, SpanIndex span, Role role = Role::none) {
    sequence_.add(bytes, alloc, free, span, "rnn", role);
  }

  // The parameters are consecutive, in the order of the operator's list.
  void flatten_weights(const Recurrent& shape, SpanIndex op) {
    std::vector<uint32_t> parameters;
    for (uint32_t i = 0; i < sequence_.traced; ++i) {
      const GpuBlock& block = sequence_.blocks[i];
      if (block.kept() && block.role == Role::parameter && block.rule != std::string_view("rnn")) parameters.push_back(i);
    }
    const size_t count = shape.weight_bytes.size();
    for (size_t at = 0; at + count <= parameters.size(); ++at) {
      bool same = true;
      for (size_t i = 0; i < count && same; ++i) same = sequence_.blocks[parameters[at + i]].size_bytes == shape.weight_bytes[i];
      if (!same) continue;
      Moment moment = sequence_.blocks[parameters[at + count - 1]].alloc;
      moment.order += 1;
      add(shape.all_weights_bytes(), moment, kNeverFreed, op, Role::parameter);
      Moment freed = moment;
      for (size_t i = 0; i < count; ++i) {
        freed.order += 1;
        GpuBlock& one = sequence_.blocks[parameters[at + i]];
        one.free = freed;
        one.rule = "rnn";
      }
      return;
    }
  }

  // The autograd nodes of the operators inside, by their sequence numbers.
  std::pair<int64_t, int64_t> backward_of(SpanIndex op, SpanIndex* first_node) const {
    const ProfileSpan& span = facts_.span(op);
    int64_t first = -1, end = -1, begin_ns = INT64_MAX, end_ns = INT64_MIN;
    for (SpanIndex i = op; i < facts_.trace.spans.size() && end < 0; ++i) {
      const ProfileSpan& inside = facts_.span(i);
      if (inside.thread != span.thread || inside.sequence_number < 0 || !facts_.is_op(i)) continue;
      if (inside.begin_ns >= span.end_ns && inside.sequence_number >= first) end = inside.sequence_number;
      if (inside.begin_ns < span.end_ns && first < 0) first = inside.sequence_number;
    }
    for (int64_t number = first; first >= 0 && number < end; ++number) {
      for (const SpanIndex node : facts_.nodes_of(number)) {
        if (facts_.span(node).begin_ns < span.end_ns) continue;
        if (facts_.span(node).begin_ns < begin_ns) *first_node = node;
        begin_ns = std::min(begin_ns, facts_.span(node).begin_ns);
        end_ns = std::max(end_ns, facts_.span(node).end_ns);
      }
    }
    return {begin_ns, end_ns};
  }

  void replace_layers(SpanIndex op, const Recurrent& shape) {
    const ProfileSpan& span = facts_.span(op);
    const std::vector<uint32_t> made = kept_between(facts_, sequence_, span.begin_ns, span.end_ns);
    uint32_t output = UINT32_MAX;
    for (const uint32_t i : made) {
      const GpuBlock& block = sequence_.blocks[i];
      if (block.size_bytes == shape.output_bytes() && block.free.time_ns > span.end_ns) output = i;
    }
    if (output == UINT32_MAX) return;
    const Moment output_free = sequence_.blocks[output].free;
    for (const uint32_t i : made) drop(i);
    flatten_weights(shape, op);
    SpanIndex node = kNoSpan;
    const auto [begin_ns, end_ns] = backward_of(op, &node);
    const bool has_backward = node != kNoSpan;
    other_kernels_.push_back({span.begin_ns, span.end_ns});
    if (has_backward) other_kernels_.push_back({begin_ns, end_ns});

    int64_t order = -(int64_t{1} << 20);
    const auto next = [&] { return Moment{span.begin_ns, order++}; };
    const Moment copy = next();
    if (shape.dropout && !random_states_) {
      add(int64_t{facts_.gpu.multiprocessors} * facts_.gpu.max_threads_per_multiprocessor * kRandomStateBytes, copy, kNeverFreed, op);
      random_states_ = true;
    }
    const Moment input = next(), result = next(), states = next(), cells = next(), workspace = next(), reserve = next();
    const Moment workspace_freed = next(), input_freed = next(), states_freed = next();
    if (shape.batch_first) add(shape.input_bytes(), input, input_freed, op);
    add(shape.output_bytes(), result, has_backward ? std::max(output_free, Moment{end_ns, 8}) : output_free, op);
    add(shape.state_bytes(), states, states_freed, op);
    if (shape.cell_state) add(shape.state_bytes(), cells, states_freed, op);
    add(shape.workspace_bytes(), workspace, workspace_freed, op);
    add(shape.reserve_bytes(), reserve, has_backward ? Moment{end_ns, 9} : workspace_freed, op);
    if (has_backward) backward(shape, node, begin_ns, end_ns);
  }

  void backward(const Recurrent& shape, SpanIndex node, int64_t begin_ns, int64_t end_ns) {
    int64_t order = -(int64_t{1} << 20);
    const auto next = [&] { return Moment{begin_ns, order++}; };
    Moment input_gradient_free = {end_ns, 6}, weights_free = {end_ns, 7};
    bool gradients_kept = false;
    for (const uint32_t i : kept_between(facts_, sequence_, begin_ns, end_ns)) {
      const GpuBlock& block = sequence_.blocks[i];
      if (block.free.time_ns > end_ns) {
        if (block.role == Role::gradient) {
          weights_free = std::max(weights_free, block.free);
          gradients_kept = true;
        } else if (block.size_bytes == shape.input_bytes()) {
          input_gradient_free = std::max(input_gradient_free, block.free);
        }
      }
      drop(i);
    }
    const Moment states = next(), input = next(), output = next(), gradient = next(), state_gradient = next(), data = next(),
                 data_freed = next(), output_freed = next(), input_freed = next(), input_again = next(), weights = next(), work = next(),
                 work_freed = next(), input_again_freed = next(), states_freed = next();
    const int64_t states_bytes = shape.state_bytes();
    add(states_bytes, states, states_freed, node);
    add(states_bytes, state_gradient, states_freed, node);
    if (shape.cell_state) {
      add(states_bytes, states, states_freed, node);
      add(states_bytes, state_gradient, states_freed, node);
    }
    if (shape.batch_first) {
      add(shape.input_bytes(), input, input_freed, node);
      add(shape.output_bytes(), output, output_freed, node);
      add(shape.input_bytes(), input_again, input_again_freed, node);
    }
    add(shape.input_bytes(), gradient, input_gradient_free, node);
    add(shape.workspace_bytes(), data, data_freed, node);
    add(shape.all_weights_bytes(), weights, weights_free, node, gradients_kept ? Role::gradient : Role::none);
    add(shape.workspace_bytes(), work, work_freed, node);
  }

  const ProfileFacts& facts_;
  Sequence& sequence_;
  bool random_states_ = false;
  std::vector<Sequence::OtherKernel> other_kernels_;
};

}  // namespace

void use_cudnn_rnn(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  RecurrentRule(facts, sequence).apply();
}

}  // namespace gpucast

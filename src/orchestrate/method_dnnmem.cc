// A static method. It knows the operators of one forward with the sizes of their inputs and outputs, the parameters and
// the batch. It knows nothing of how a script runs. Where the papers are silent, we assume:
//
// Graph     Nodes are the outermost operators of the first forward (and loss) followed by a backward, in the order in
//           which they run, which is a topological order. A trace does not say which tensor is which. So an operator's
//           input is the latest output with its size in bytes that is not yet another input of the operator; otherwise
//           the latest larger view whose size is a multiple of it (a slice). The position among the inputs separates
//           weights from activations. An output is a block that outlives its operator. An operator without one works in
//           place or makes a view, and its output is its input's memory.
// Backward  The nodes in the opposite order. A node allocates a gradient for each of its inputs, with the input's size,
//           and one more for each parameter it owns. The sequence number of the gradient's autograd node gives the
//           owner of a parameter.
// Liveness  Reference counts on this graph. An output is freed after the last node that uses it: in forward, or in
//           backward if this kind of operator saves it. The gradient of an activation is freed when its node has run
//           backward. Parameters, buffers and the batch are there from the beginning and stay. Gradients of parameters
//           stay.
// Optimizer None: xMem's section 5.1 says that a static graph does not know the optimizer's phase, and in the authors'
//           published runs DNNMem's figure is the same for every optimizer. There is no zero_grad and no scratch memory
//           of kernels either.
// Allocator "Basic BFC": PyTorch's simulated allocator, which is best fit with coalescing. The authors used their own
//           simulation of it, too.

#include "src/orchestrate/method_dnnmem.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

namespace gpucast {
namespace {

constexpr uint32_t kNoNode = UINT32_MAX;

// What backward needs of an operator, and which of its inputs are weights (one bit for each position).
struct OperatorKind {
  std::string_view name;
  bool saves_inputs = false, saves_output = false;
  uint32_t weights = 0;
};

OperatorKind kind_of(std::string_view name) {
  static constexpr auto kKinds = std::to_array<OperatorKind>({
      {"aten::conv1d", true, false, 0b110},
      {"aten::conv2d", true, false, 0b110},
      {"aten::conv3d", true, false, 0b110},
      {"aten::conv_transpose2d", true, false, 0b110},
      {"aten::linear", true, false, 0b110},
      {"aten::addmm", true, false, 0b101},  // x * weight + bias, as in GPT-2's Conv1D
      {"aten::batch_norm", true, false, 0b11110},
      {"aten::group_norm", true, false, 0b1100},
      {"aten::layer_norm", true, false, 0b1100},
      {"aten::rms_norm", true, false, 0b100},
      {"aten::embedding", true, false, 0b1},
      {"aten::relu", false, true},
      {"aten::relu_", false, true},
      {"aten::sigmoid", false, true},
      {"aten::tanh", false, true},
      {"aten::softmax", false, true},
      {"aten::log_softmax", false, true},
      {"aten::exp", false, true},
      {"aten::sqrt", false, true},
      {"aten::rsqrt", false, true},
      {"aten::dropout", false, true},
      {"aten::dropout_", false, true},
      {"aten::feature_dropout", false, true},
      {"aten::max_pool2d", true, true},
      {"aten::cross_entropy_loss", true, true},
      {"aten::scaled_dot_product_attention", true, true},
      {"aten::add"},
      {"aten::add_"},
      {"aten::sub"},
      {"aten::neg"},
      {"aten::mean"},
      {"aten::sum"},
      {"aten::cat"},
      {"aten::adaptive_avg_pool2d"},
  });
  for (const OperatorKind& kind : kKinds) {
    if (kind.name == name) return kind;
  }
  if (is_plumbing(name)) return {name};
  return {name, true};  // products, powers, activations such as gelu and silu
}

// The memory of one tensor on the static graph. Times are positions in the order: forward nodes first, then backward ones.
struct GraphTensor {
  int64_t size_bytes = 0;
  uint32_t born = 0, last_use = 0;
};

struct GraphNode {
  SpanIndex op = kNoSpan;
  OperatorKind kind;
  std::vector<uint32_t> inputs;   // the nodes that produced its inputs
  std::vector<uint32_t> tensors;  // blocks that outlive the operator, the output first (the largest); empty: in place or a view
  uint32_t memory = kNoNode;      // the tensor that holds its output; kNoNode: a leaf's memory
  int64_t output_bytes = 0;
  bool trained = false;  // a gradient reaches it: it has a weight, or one of its inputs is trained
  bool is_view() const { return tensors.empty() && is_plumbing(kind.name); }
};

class Graph {
 public:
  Graph(const ProfileFacts& facts, const Sequence& sequence) : facts_(facts), sequence_(sequence) {
    choose_step();
    if (backward_ == nullptr) return;  // nothing is trained
    collect_nodes();
    if (nodes_.empty()) return;
    for (uint32_t i = 0; i < nodes_.size(); ++i) connect(i);
    end_ = static_cast<uint32_t>(2 * nodes_.size());
    for (uint32_t i = static_cast<uint32_t>(nodes_.size()); i-- > 0;) run_backward(i);
    place_parameter_gradients();
  }

  int64_t backward_begin_ns() const { return backward_ == nullptr ? INT64_MIN : backward_->begin_ns; }

  // Adds the tensors as blocks, with times of the traced step.
  void add_blocks(Sequence* sequence) const {
    const auto moment = [&](uint32_t place, int64_t at) {
      if (place < nodes_.size()) return Moment{facts_.span(nodes_[place].op).end_ns, at};
      return Moment{backward_begin_ns(), (int64_t{place} << 32) + at};
    };
    int64_t order = 0;
    const auto add = [&](const GraphTensor& tensor, Role role, bool stays) {
      // After blocks that are allocated at the position of the last use.
      const Moment free = stays ? kNeverFreed : moment(tensor.last_use, (int64_t{1} << 31) + order);
      sequence->add(tensor.size_bytes, moment(tensor.born, order), free, nodes_[forward_node(tensor.born)].op, "graph", role);
      ++order;
    };
    for (const GraphTensor& tensor : tensors_) add(tensor, Role::none, false);
    for (const GraphTensor& tensor : activation_gradients_) add(tensor, Role::none, false);
    for (const GraphTensor& tensor : parameter_gradients_) add(tensor, Role::gradient, true);
  }

 private:
  uint32_t forward_node(uint32_t place) const { return place < nodes_.size() ? place : end_ - 1 - place; }
  uint32_t backward_place(uint32_t node) const { return end_ - 1 - node; }

  // The first backward that follows a forward.
  void choose_step() {
    for (const PhaseWindow& backward : facts_.phases.backwards) {
      for (const PhaseWindow& forward : facts_.phases.forwards) {
        if (forward.end_ns <= backward.begin_ns && forward.begin_ns >= begin_ns_ && backward_ == nullptr) {
          begin_ns_ = forward.begin_ns;
          backward_ = &backward;
        }
      }
      if (backward_ != nullptr) return;
      begin_ns_ = backward.end_ns;
    }
  }

  void collect_nodes() {
    std::unordered_map<SpanIndex, uint32_t> node_of;  // for root operators
    std::vector<SpanIndex> root(facts_.trace.spans.size(), kNoSpan);
    for (SpanIndex i = 0; i < facts_.trace.spans.size(); ++i) {
      const ProfileSpan& span = facts_.span(i);
      if (span.begin_ns >= backward_->begin_ns) break;
      const SpanIndex parent = facts_.tree.parent[i];
      if (parent != kNoSpan) root[i] = root[parent];
      if (!facts_.is_op(i) || span.begin_ns < begin_ns_ || span.thread != facts_.phases.main_thread) continue;
      const PhaseWindow* window = facts_.phases.window_at(span.begin_ns);
      if (window != nullptr && window->phase != Phase::forward) continue;
      if (root[i] == kNoSpan) {
        root[i] = i;
        node_of[i] = static_cast<uint32_t>(nodes_.size());
        GraphNode node;
        node.op = i;
        node.kind = kind_of(facts_.name(i));
        nodes_.push_back(node);
      }
      if (span.sequence_number >= 0) node_of_number_[span.sequence_number] = node_of[root[i]];
    }
    // The blocks that outlive each node's operator.
    for (size_t i = 0; i < sequence_.traced; ++i) {
      const GpuBlock& block = sequence_.blocks[i];
      if (block.span == kNoSpan || root[block.span] == kNoSpan) continue;
      const uint32_t at = node_of[root[block.span]];
      if (block.free.time_ns <= facts_.span(root[block.span]).end_ns) continue;
      nodes_[at].tensors.push_back(static_cast<uint32_t>(tensors_.size()));
      tensors_.push_back({block.size_bytes, at, at});
    }
    for (GraphNode& node : nodes_) {
      std::stable_sort(node.tensors.begin(), node.tensors.end(),
                       [&](uint32_t a, uint32_t b) { return tensors_[a].size_bytes > tensors_[b].size_bytes; });
    }
  }

  void use(uint32_t tensor, uint32_t place) {
    if (tensor != kNoNode) tensors_[tensor].last_use = std::max(tensors_[tensor].last_use, place);
  }

  // The latest node before `end` with an output of that size; otherwise the latest view whose size is a multiple of it.
  uint32_t producer(int64_t bytes, uint32_t end, const std::vector<uint32_t>& taken) const {
    const auto find = [&](bool part) {
      for (uint32_t i = end; i-- > 0;) {
        const int64_t has = nodes_[i].output_bytes;
        const bool fits = part ? nodes_[i].is_view() && has > bytes && has % bytes == 0 : has == bytes;
        if (fits && std::find(taken.begin(), taken.end(), i) == taken.end()) return i;
      }
      return kNoNode;
    };
    const uint32_t same = find(false);
    return same != kNoNode ? same : find(true);
  }

  void connect(uint32_t at) {
    GraphNode& node = nodes_[at];
    const DimsList& dims = facts_.dims(node.op);
    const std::vector<std::string>& types = facts_.types(node.op);
    int64_t first_bytes = 0;
    const auto take = [&](int64_t bytes) {
      if (bytes <= 0) return;
      if (first_bytes == 0) first_bytes = bytes;
      const uint32_t from = producer(bytes, at, node.inputs);
      if (from != kNoNode) node.inputs.push_back(from);
    };
    for (size_t i = 0; i < dims.inputs.size() && i < types.size(); ++i) {
      if (i < 32 && (node.kind.weights >> i & 1U) != 0) continue;
      if (!dims.inputs[i].empty()) take(numel(dims.inputs[i]) * element_bytes(types[i]));
      // A list of tensors has no element type in the trace. In forward only lists of floats are joined.
      if (i < dims.lists.size()) {
        for (const std::vector<int64_t>& tensor : dims.lists[i]) take(numel(tensor) * 4);
      }
    }
    if (!node.tensors.empty()) {
      node.memory = node.tensors.front();
      node.output_bytes = tensors_[node.memory].size_bytes;
    } else if (!node.inputs.empty()) {
      node.memory = nodes_[node.inputs.front()].memory;
      node.output_bytes = first_bytes;
    }
    node.trained = node.kind.weights != 0;
    for (const uint32_t from : node.inputs) {
      use(nodes_[from].memory, at);
      node.trained = node.trained || nodes_[from].trained;
    }
  }

  void run_backward(uint32_t at) {
    const GraphNode& node = nodes_[at];
    if (!node.trained) return;
    const uint32_t place = backward_place(at);
    if (node.kind.saves_inputs) {
      for (const uint32_t from : node.inputs) use(nodes_[from].memory, place);
    }
    if (node.kind.saves_output) {
      for (const uint32_t tensor : node.tensors) use(tensor, place);
      use(node.memory, place);
    }
    if (node.is_view()) return;  // the gradient is a view too
    for (const uint32_t from : node.inputs) {
      if (!nodes_[from].trained) continue;
      uint32_t taker = from;
      while (nodes_[taker].is_view() && !nodes_[taker].inputs.empty()) taker = nodes_[taker].inputs.front();
      activation_gradients_.push_back({nodes_[from].output_bytes, place, backward_place(taker)});
    }
  }

  // Parameter gradients are allocated where backward makes them: the number of the autograd node gives the place. Without a number, the
  // place of the previous gradient is used.
  void place_parameter_gradients() {
    uint32_t node = static_cast<uint32_t>(nodes_.size()) - 1;
    for (size_t i = 0; i < sequence_.traced; ++i) {
      const GpuBlock& block = sequence_.blocks[i];
      if (block.role != Role::gradient || block.alloc.time_ns < backward_->begin_ns || block.alloc.time_ns >= backward_->end_ns) continue;
      const SpanIndex around = facts_.node_around(block.span);
      const auto found = around == kNoSpan ? node_of_number_.end() : node_of_number_.find(facts_.span(around).sequence_number);
      if (found != node_of_number_.end()) node = found->second;
      parameter_gradients_.push_back({block.size_bytes, backward_place(node), end_});
    }
  }

  const ProfileFacts& facts_;
  const Sequence& sequence_;
  const PhaseWindow* backward_ = nullptr;
  int64_t begin_ns_ = INT64_MIN;
  uint32_t end_ = 0;
  std::vector<GraphNode> nodes_;
  std::vector<GraphTensor> tensors_, activation_gradients_, parameter_gradients_;
  std::unordered_map<int64_t, uint32_t> node_of_number_;
};

void build_graph(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  const Graph graph(facts, *sequence);
  for (GpuBlock& block : sequence->blocks) {
    if (!block.kept()) continue;
    const bool model = block.role == Role::parameter || block.role == Role::buffer;
    const bool batch = block.role == Role::input && block.alloc.time_ns < graph.backward_begin_ns();
    if (model || batch) {
      block.free = kNeverFreed;
      continue;
    }
    block.drop(Fate::not_modelled, "graph");
  }
  graph.add_blocks(sequence);
}

}  // namespace

const std::vector<Rule>& dnnmem_rules() {
  static const std::vector<Rule> kRules = {
      {"host", "data that stays in the host's memory is left out", true, drop_host_data},
      {"model", "parameters and buffers are on the device from the beginning", true, place_model},
      {"batch", "which blocks are the batch", true, place_batch},
      {"graph", "operators of one forward and their backward, each tensor until its last use on the graph", true, build_graph},
  };
  return kRules;
}

}  // namespace gpucast

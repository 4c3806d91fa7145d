// Predicts lower precision (bf16, fp16) from a trace in fp32: the whole model in it, or autocast.
//
// A trace shows which operator allocated a block and the shapes of its inputs, but not which block an input was. So the rule follows the
// operators in order and assumes that an input is the latest living block of its size. If the operator keeps the input for backward, the
// block must live that long. In this way every block gets the type that PyTorch would give it:
//
//   trace, fp32                     autocast                                    whole model
//   linear(x, w) -> y               w', x' = casts, 2 bytes an element          2 bytes an element
//                                   y: 2 bytes an element                       2 bytes an element
//   layer_norm(y) -> z              y' = cast, 4 bytes an element; z: 4 bytes   2 bytes, its mean and rstd 4 bytes
//   backward of linear -> dx, dw    dx', dw' with 2 bytes, then dx, dw          2 bytes
//
// Backward then needs the casts instead of their sources, so a source may be freed sooner. Weights are cast once in each autocast region,
// and the casts are kept until the region ends.

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/orchestrate/autocast_lists.h"
#include "src/orchestrate/float_blocks.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

constexpr uint32_t kNoIndex = UINT32_MAX;

struct Input {
  int64_t elements = 0;
  uint32_t block = kNoIndex;  // index in the sequence
  size_t place = 0;           // position among the operator's arguments
  bool weight = false, bias = false;
  bool low = false;     // whether the tensor has lower precision
  bool copied = false;  // the script has copied it to the other type
  bool used = false;    // whether the operator reads it in lower precision
  bool cast() const { return !copied && low != used; }
  bool comes_low() const { return low != copied; }
};

// An operator of the forward pass, or outside any pass. Operators inside it are not looked at.
struct Operator {
  SpanIndex span = kNoSpan;
  int64_t number = 0;                                            // autograd's sequence number of its first node, if it has nodes
  int64_t nodes_begin_ns = INT64_MAX, nodes_end_ns = INT64_MIN;  // time of its backward; none: begin > end
  int64_t computed_ns = INT64_MIN;      // the end of the last node that computes: inputs kept for backward are freed there
  std::vector<int64_t> gradient_bytes;  // gradients that outlive its backward
  CastPolicy policy = CastPolicy::promote;
  bool low = false;  // whether its result has lower precision
  std::vector<Input> inputs;
  int64_t kept_until_ns() const { return computed_ns == INT64_MIN ? nodes_end_ns : computed_ns; }
  bool has_backward() const { return nodes_begin_ns < nodes_end_ns; }
};

// A use of a block as an operator's input. The uses give the lifetime of a block that backward no longer needs.
struct Use {
  uint32_t op = 0;
  bool cast = false;
};

// An fp32 copy that the script makes, as in logits.float().
struct Copy {
  int64_t until_ns = 0;  // until then the script has it
  uint32_t block = kNoIndex;
};

class MixedPrecision {
 public:
  MixedPrecision(const ProfileFacts& facts, const LowerPrecision& precision, Sequence* sequence)
      : facts_(facts), precision_(precision), sequence_(*sequence), low_(sequence->blocks.size()) {}

  void apply() {
    find_floats();
    collect();
    walk();
    shorten();
    resize();
  }

 private:
  // ---- Blocks with fp32 numbers -------------------------------------------------------------------------------------------

  void find_floats() {
    floats_ = blocks_of_floats(facts_, sequence_);
    for (size_t i = 0; i < sequence_.blocks.size(); ++i) {
      low_[i] = floats_[i] && !precision_.amp;
      if (sequence_.blocks[i].role == Role::parameter) parameter_bytes_.insert(sequence_.blocks[i].size_bytes);
    }
  }

  // ---- Operators, and their autograd nodes --------------------------------------------------------------------------------

  void collect() {
    std::vector<int64_t> busy_until_ns(facts_.trace.threads.size(), INT64_MIN);
    for (SpanIndex i = 0; i < facts_.trace.spans.size(); ++i) {
      const ProfileSpan& span = facts_.span(i);
      if (span.kind != SpanKind::op || span.begin_ns < busy_until_ns[span.thread]) continue;
      const std::string_view name = facts_.name(i);
      if (is_autograd_node(name)) {
        order_.emplace_back(true, static_cast<uint32_t>(nodes_.size()));
        nodes_.push_back(i);
        busy_until_ns[span.thread] = span.end_ns;
        continue;
      }
      if (name.substr(0, 6) != "aten::" || is_seen_through(name)) continue;
      Operator op;
      op.span = i;
      op.policy = cast_policy(name);
      if (span.sequence_number >= 0) {
        op.number = numbered_.empty() ? span.sequence_number : std::max(span.sequence_number, operators_[numbered_.back()].number);
        numbered_.push_back(static_cast<uint32_t>(operators_.size()));
      }
      busy_until_ns[span.thread] = span.end_ns;
      order_.emplace_back(false, static_cast<uint32_t>(operators_.size()));
      operators_.push_back(op);
    }
    for (const SpanIndex node : nodes_) {
      const uint32_t op = operator_of(node);
      if (op == kNoIndex) continue;
      operators_[op].nodes_begin_ns = std::min(operators_[op].nodes_begin_ns, facts_.span(node).begin_ns);
      operators_[op].nodes_end_ns = std::max(operators_[op].nodes_end_ns, facts_.span(node).end_ns);
      for (const uint32_t i : born_in(node)) {
        if (!floats_[i]) continue;
        operators_[op].computed_ns = facts_.span(node).end_ns;
        if (freed_ns(i) > facts_.span(node).end_ns) operators_[op].gradient_bytes.push_back(facts_.cpu.blocks[i].size_bytes);
      }
    }
  }

  // The last operator with this number or a lower one: earlier operators with the same number made no node.
  uint32_t operator_of(SpanIndex node) const {
    const int64_t number = facts_.span(node).sequence_number;
    const auto after =
        std::partition_point(numbered_.begin(), numbered_.end(), [&](uint32_t op) { return operators_[op].number <= number; });
    if (number < 0 || after == numbered_.begin()) return kNoIndex;
    const uint32_t op = *std::prev(after);
    return facts_.span(operators_[op].span).end_ns <= facts_.span(node).begin_ns ? op : kNoIndex;
  }

  // ---- Walk over operators and nodes, in order ----------------------------------------------------------------------------

  void walk() {
    int cached_region = -1;
    for (const auto& [node, index] : order_) {
      const SpanIndex span = node ? nodes_[index] : operators_[index].span;
      const int region = precision_.region_at(facts_.span(span).begin_ns);
      if (region >= 0 && std::exchange(cached_region, region) != region) weight_casts_.clear();
      if (node) {
        backward(span);
      } else {
        forward(index, region);
      }
    }
  }

  int64_t freed_ns(uint32_t i) const {
    const ProfileBlock& block = facts_.cpu.blocks[i];
    return block.free_event == ProfileBlock::kNever ? INT64_MAX : facts_.trace.memory[block.free_event].time_ns;
  }

  // Traced blocks that the span's own thread allocated in the span, in order.
  std::vector<uint32_t> born_in(SpanIndex span) const {
    const ProfileSpan& time = facts_.span(span);
    std::vector<uint32_t> out = facts_.born_between(time.begin_ns, time.end_ns);
    std::erase_if(out, [&](uint32_t i) { return facts_.trace.memory[facts_.cpu.blocks[i].alloc_event].thread != time.thread; });
    return out;
  }

  // Blocks become visible to the search below when they are made.
  void remember(uint32_t i) {
    if (floats_[i]) by_bytes_[facts_.cpu.blocks[i].size_bytes].push_back(i);
  }

  // The block of an input with this size: the latest living block that is not among `others`. A block that lives until `kept_ns` is
  // preferred.
  uint32_t block_of(int64_t bytes, int64_t now_ns, int64_t kept_ns, const std::vector<Input>& others) {
    const auto found = by_bytes_.find(bytes);
    if (found == by_bytes_.end()) return kNoIndex;
    std::vector<uint32_t>& list = found->second;
    std::erase_if(list, [&](uint32_t i) { return freed_ns(i) < now_ns; });
    uint32_t best = kNoIndex;
    for (auto at = list.rbegin(); at != list.rend(); ++at) {
      if (std::any_of(others.begin(), others.end(), [&](const Input& other) { return other.block == *at; })) continue;
      if (freed_ns(*at) >= kept_ns) return *at;
      if (best == kNoIndex) best = *at;
    }
    return best;
  }

  // The block of a view of a part: the latest living block that is large enough.
  uint32_t block_around(int64_t bytes, int64_t now_ns, int64_t kept_ns) {
    uint32_t best = kNoIndex;
    for (auto list = by_bytes_.upper_bound(bytes); list != by_bytes_.end() && list->first <= 4 * bytes; ++list) {
      std::erase_if(list->second, [&](uint32_t i) { return freed_ns(i) < now_ns; });
      for (const uint32_t i : list->second) {
        if (freed_ns(i) >= kept_ns && (best == kNoIndex || i > best)) best = i;
      }
    }
    return best;
  }

  // Whether an input is a weight: by its position, otherwise by its size.
  bool is_weight(std::string_view name, size_t input, int64_t bytes) const {
    if (name == "aten::linear" || name.substr(0, 10) == "aten::conv" || name == "aten::prelu") return input > 0;
    if (name == "aten::embedding") return input == 0;
    if (has_statistics(name)) return input > 0;
    if (name == "aten::addmm") return input != 1 && parameter_bytes_.contains(bytes);
    return cast_policy(name) == CastPolicy::lower && parameter_bytes_.contains(bytes) && !by_bytes_.contains(bytes);
  }

  void resolve_inputs(Operator* op) {
    const std::string_view name = facts_.name(op->span);
    const DimsList& dims = facts_.dims(op->span);
    const DimsList& strides = facts_.strides(op->span);
    const std::vector<std::string>& types = facts_.types(op->span);
    const int64_t now_ns = facts_.span(op->span).begin_ns;
    const int64_t kept_ns = op->has_backward() && saves_inputs(name) ? op->nodes_begin_ns : 0;
    const auto add = [&](size_t index, const std::vector<int64_t>& shape, const std::vector<int64_t>* steps) {
      if (shape.empty()) return;  // numbers do not promote
      Input input;
      input.elements = numel(shape);
      input.place = index;
      input.weight = is_weight(name, index, 4 * input.elements) || (shape.size() == 1 && parameter_bytes_.contains(4 * input.elements));
      input.bias = input.weight && shape.size() == 1;
      input.low = !precision_.amp;
      if (!input.weight && input.elements > 0) {
        input.block = block_of(4 * input.elements, now_ns, kept_ns, op->inputs);
        if (input.block == kNoIndex && steps != nullptr && steps->size() == shape.size()) {
          int64_t extent = 1;
          for (size_t d = 0; d < shape.size(); ++d) extent += (shape[d] - 1) * (*steps)[d];
          if (extent < input.elements) input.block = block_of(4 * extent, now_ns, kept_ns, op->inputs);
          if (input.block == kNoIndex) input.block = block_around(4 * extent - 1, now_ns, kept_ns);
        }
        if (input.block != kNoIndex) input.low = low_[input.block];
        const auto copy = copies_.find(input.block);
        if (copy != copies_.end() && copy->second.until_ns > now_ns) input.copied = true;
        if (downcasts_.contains(input.block)) {
          input.low = false;
          input.copied = true;
        }
      }
      input.used = input.comes_low();
      op->inputs.push_back(input);
    };
    for (size_t i = 0; i < dims.inputs.size() && i < types.size(); ++i) {
      if (types[i] == "float") add(i, dims.inputs[i], i < strides.inputs.size() ? &strides.inputs[i] : nullptr);
      if (types[i] == "TensorList" && i < dims.lists.size()) {
        for (const std::vector<int64_t>& shape : dims.lists[i]) add(i, shape, nullptr);
      }
    }
  }

  void forward(uint32_t index, int region) {
    Operator& op = operators_[index];
    const std::string_view name = facts_.name(op.span);
    resolve_inputs(&op);
    reconcile(&op);
    if (name == "aten::to") return follow_to(&op);
    const bool autocast = precision_.amp && region >= 0;
    CastPolicy policy = autocast ? op.policy : CastPolicy::promote;
    if (names_input_type(facts_, op.span)) policy = CastPolicy::promote;
    if (asks_for_fp32(facts_, op.span)) policy = CastPolicy::fp32_result;
    // softmax has a kernel from fp16 to fp32, but bf16 is cast first. Sums read any type.
    const bool softmax = name == "aten::softmax" || name == "aten::log_softmax";
    const bool as_it_comes = policy == CastPolicy::fp32_result && (precision_.fp16 || !softmax);
    op.policy = policy;
    if (policy == CastPolicy::promote) {
      op.low = !op.inputs.empty() &&
               (follows_first_input(name) ? op.inputs[0].used
                                          : std::all_of(op.inputs.begin(), op.inputs.end(), [](const Input& in) { return in.used; }));
      if (op.inputs.empty()) op.low = !precision_.amp;
    } else {
      op.low = policy == CastPolicy::lower;
      for (Input& input : op.inputs) input.used = as_it_comes ? input.comes_low() : op.low;
      // Arguments are evaluated from the last to the first.
      for (auto input = op.inputs.rbegin(); input != op.inputs.rend(); ++input) {
        if (input->cast()) add_cast(&op, *input, region);
      }
      if (op.low) ++products_in_[facts_.module_of(op.span)];
    }
    for (const Input& input : op.inputs) {
      if (input.block == kNoIndex) continue;
      const auto copy = input.copied ? copies_.find(input.block) : copies_.end();
      uses_[input.block].push_back({index, input.cast() || copy != copies_.end()});
      if (copy == copies_.end() || !op.has_backward() || !saves_inputs(name)) continue;
      GpuBlock& block = sequence_.blocks[copy->second.block];
      block.free = std::max(block.free, Moment{op.kept_until_ns(), next_order()});
    }
    for (const uint32_t i : born_in(op.span)) {
      const bool statistic = has_statistics(name) && !op.inputs.empty() && facts_.cpu.blocks[i].size_bytes != 4 * op.inputs[0].elements;
      if (floats_[i]) low_[i] = op.low && !statistic;
      if (!statistic) remember(i);
      maker_[i] = index;
    }
  }

  // x.float(), x.to(dtype): no work in fp32, a copy in lower precision.
  void follow_to(Operator* op) {
    const std::vector<uint32_t> born = born_in(op->span);
    for (const uint32_t i : born) {
      // From integers, the script really wants fp32.
      if (floats_[i] && sequence_.blocks[i].role == Role::none) low_[i] = !op->inputs.empty() && op->inputs[0].low;
      remember(i);
    }
    const std::vector<std::string>& values = facts_.concrete(op->span);
    // to.dtype, or the to.dtype_layout inside type_as
    const SpanIndex parent = facts_.tree.parent[op->span];
    const bool of_type_as = parent != kNoSpan && facts_.name(parent) == "aten::type_as";
    const bool names_type = (values.size() == 5 || (of_type_as && values.size() == 8)) && values[1] == std::to_string(kFloatType);
    if (!born.empty() || !names_type || op->inputs.empty() || op->inputs[0].block == kNoIndex || op->inputs[0].copied) return;
    if (facts_.phases.loop_begin_ns > facts_.span(op->span).begin_ns) return;
    // Outside the model's code a script casts its data to the model's type, and not back.
    if (!precision_.amp && facts_.module_of(op->span) == kNoSpan) return;
    const Input& input = op->inputs[0];
    // The copy lives until the calling Python function returns.
    SpanIndex caller = facts_.tree.parent[op->span];
    const auto in_python = [&](SpanIndex span) {
      return facts_.span(span).kind != SpanKind::op && facts_.name(span).substr(0, 9) != "<built-in";
    };
    while (caller != kNoSpan && !in_python(caller)) caller = facts_.tree.parent[caller];
    const int64_t now_ns = facts_.span(op->span).begin_ns;
    const int64_t until_ns = caller == kNoSpan ? facts_.span(op->span).end_ns : facts_.span(caller).end_ns;
    const auto maker = maker_.find(input.block);
    const bool kept = maker != maker_.end() && saves_result(facts_.name(operators_[maker->second].span));
    if (input.low || (kept && !precision_.amp)) {
      const uint32_t copy = add((input.low ? 4 : 2) * input.elements, {now_ns, next_order()}, {until_ns, next_order()}, op->span);
      copies_[input.block] = {until_ns, copy};
    } else if (!precision_.amp && floats_[input.block] && !low_[input.block]) {
      // A result computed in fp32 is cast back to the model's type: hidden.to(input_dtype).
      downcast(input.block, now_ns, until_ns);
    }
  }

  // The traced block becomes the copy, and an added block replaces it.
  void downcast(uint32_t i, int64_t now_ns, int64_t until_ns) {
    GpuBlock& block = sequence_.blocks[i];
    low_[i] = true;
    downcasts_.insert(i);
    if (!block.kept() || block.free.time_ns <= until_ns) return;
    add(block.size_bytes, block.alloc, {until_ns, next_order()}, block.span);
    GpuBlock& copy = sequence_.blocks[i];
    copy.alloc = {now_ns, next_order()};
    copy.rule = "mixed_precision";
  }

  // PyTorch refuses a product of two types. If the trace leads to one, the model itself casts to the type of its weights, in a way that has
  // no effect in fp32 (T5's layer norm): it casts before it multiplies by the weight.
  void reconcile(Operator* op) {
    const bool mixed = std::any_of(op->inputs.begin(), op->inputs.end(), [](const Input& input) { return input.used; });
    if (precision_.amp || !mixed || cast_policy(facts_.name(op->span)) != CastPolicy::lower) return;
    for (Input& input : op->inputs) {
      if (input.used || input.block == kNoIndex || !floats_[input.block]) continue;
      input.low = input.used = true;
      input.copied = false;
      low_[input.block] = true;
      const auto maker = maker_.find(input.block);
      if (maker == maker_.end()) continue;
      Operator& made = operators_[maker->second];
      made.low = true;
      for (Input& source : made.inputs) {
        if (source.used || source.block == kNoIndex || source.elements != input.elements || !floats_[source.block]) continue;
        const int64_t now_ns = facts_.span(made.span).begin_ns;
        downcast(source.block, now_ns, now_ns);
        source.copied = source.used = true;
      }
    }
  }

  int64_t next_order() { return order_of_added_++; }

  uint32_t add(int64_t bytes, Moment alloc, Moment free, SpanIndex span) {
    return sequence_.add(bytes, alloc, free, span, "mixed_precision");
  }

  void add_cast(Operator* op, const Input& input, int region) {
    const ProfileSpan& span = facts_.span(op->span);
    const int64_t bytes = (input.used ? 2 : 4) * input.elements;
    const Moment begin{span.begin_ns, next_order()};
    const bool kept = op->has_backward() && saves_inputs(facts_.name(op->span));
    if (!input.weight) {
      add(bytes, begin, kept ? Moment{op->kept_until_ns(), next_order()} : facts_.end_of(op->span), op->span);
      return;
    }
    // A weight is identified by its module and by the number of the product in the module. If the trace has no modules, each use counts as
    // another weight.
    const SpanIndex module = facts_.module_of(op->span);
    const int32_t product = products_in_[module];
    const std::tuple<int32_t, int32_t, size_t> key{module == kNoSpan ? -1 : facts_.span(module).name.value, product, input.place};
    auto cached = module == kNoSpan ? weight_casts_.end() : weight_casts_.find(key);
    if (cached == weight_casts_.end()) {
      const uint32_t cast = add(bytes, begin, {precision_.regions[region].end_ns, next_order()}, op->span);
      cached = weight_casts_.insert_or_assign(key, cast).first;
    }
    if (!kept || input.bias || !needs_weight(*op)) return;
    GpuBlock& block = sequence_.blocks[cached->second];
    block.free = std::max(block.free, Moment{op->kept_until_ns(), next_order()});
  }

  // Backward of a product needs the weight only for the gradient of its input. The network's input has no gradient.
  bool needs_weight(const Operator& op) const {
    if (facts_.name(op.span).substr(0, 10) == "aten::conv") return true;
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Input& input) {
      return !input.weight && std::find(op.gradient_bytes.begin(), op.gradient_bytes.end(), 4 * input.elements) != op.gradient_bytes.end();
    });
  }

  // ---- Backward -----------------------------------------------------------------------------------------------------------

  void backward(SpanIndex node) {
    const uint32_t index = operator_of(node);
    const std::string_view name = facts_.name(node).substr(kAutogradNode.size());
    const ProfileSpan& span = facts_.span(node);
    const std::vector<uint32_t> born = born_in(node);
    const std::vector<uint32_t> waiting = std::exchange(waiting_, {});
    for (const uint32_t i : waiting) {
      if (born.empty()) {
        waiting_.push_back(i);
      } else {
        sequence_.blocks[i].free = {span.end_ns, next_order()};
      }
    }
    if (index == kNoIndex) {
      for (const uint32_t i : born) remember(i);
      return;
    }
    const Operator& op = operators_[index];
    std::vector<bool> matched(op.inputs.size());
    for (const uint32_t i : born) {
      if (floats_[i]) gradient(i, op, node, name, &matched);
      remember(i);
    }
    for (size_t i = sequence_.traced; i < floats_.size(); ++i) {
      // Gradients added by the rule "attention".
      const GpuBlock& block = sequence_.blocks[i];
      if (block.span == node && std::string_view(block.rule) == "attention" && block.free.time_ns > span.end_ns)
        widen(i, op, node, &matched);
    }
    // A sum passes the gradient of its fp32 result on unchanged. Inputs in lower precision get a cast of it.
    if (op.policy != CastPolicy::promote || op.low || name.substr(0, 3) != "Add") return;
    for (size_t input = 0; input < op.inputs.size(); ++input) {
      if (!op.inputs[input].low || matched[input] || op.inputs[input].block == kNoIndex) continue;
      waiting_.push_back(add(2 * op.inputs[input].elements, {span.end_ns, next_order()}, {span.end_ns + 1, next_order()}, node));
    }
  }

  // Compares the type in which the node computes a gradient with the type of the gradient's tensor.
  void gradient(uint32_t i, const Operator& op, SpanIndex node, std::string_view name, std::vector<bool>* matched) {
    const int64_t elements = facts_.cpu.blocks[i].size_bytes / 4;
    const int64_t end_ns = facts_.span(node).end_ns;
    SpanIndex below = sequence_.blocks[i].span;
    while (below != kNoSpan && facts_.tree.parent[below] != node) below = facts_.tree.parent[below];
    if (below != kNoSpan && facts_.name(below) != name) {
      // Not made by the node itself: the sum of gradients from several uses.
      const uint32_t one = block_of(4 * elements, facts_.span(below).begin_ns, 0, {});
      std::vector<Input> others(1);
      others[0].block = one;
      const uint32_t two = block_of(4 * elements, facts_.span(below).begin_ns, 0, others);
      low_[i] = one == kNoIndex ? !precision_.amp : low_[one] && (two == kNoIndex || low_[two]);
      // It is added into the first gradient if that is the result of a cast: nothing else uses its storage.
      if (two == kNoIndex || !cast_results_.contains(two) || low_[two]) return;
      GpuBlock& sum = sequence_.blocks[i];
      GpuBlock& first = sequence_.blocks[two];
      if (!sum.kept() || !first.kept()) return;
      first.free = sum.free;
      first.role = sum.role;
      sum.drop(Fate::other_kernel, "mixed_precision");
      return;
    }
    const bool low_inside = op.low;
    if (freed_ns(i) <= end_ns) {
      low_[i] = low_inside;
      return;
    }
    size_t input = 0;
    while (input < op.inputs.size() && ((*matched)[input] || op.inputs[input].elements != elements)) ++input;
    if (input == op.inputs.size()) {
      low_[i] = low_inside;
      return;
    }
    (*matched)[input] = true;
    const bool raw = op.policy == CastPolicy::promote && !follows_first_input(facts_.name(op.span)) ? op.low : op.inputs[input].used;
    low_[i] = op.inputs[input].low;
    if (raw == low_[i]) return;
    cast_results_.insert(i);
    GpuBlock& result = sequence_.blocks[i];
    const Moment made = result.alloc;
    // The gradient of a weight is cast last, after the views between.
    const int64_t cast_ns = op.inputs[input].weight && op.nodes_end_ns < result.free.time_ns ? op.nodes_end_ns : end_ns;
    result.alloc = {cast_ns, next_order()};
    result.rule = "mixed_precision";
    const bool kept = result.kept();
    const Moment cast{cast_ns, next_order()};
    if (kept && result.free > result.alloc) add((raw ? 2 : 4) * elements, made, cast, node);
  }

  // An added gradient in lower precision whose input is in fp32.
  void widen(size_t i, const Operator& op, SpanIndex node, std::vector<bool>* matched) {
    const int64_t elements = sequence_.blocks[i].size_bytes / 2;
    for (size_t input = 0; input < op.inputs.size(); ++input) {
      if ((*matched)[input] || op.inputs[input].elements != elements) continue;
      (*matched)[input] = true;
      if (op.inputs[input].low) return;
      const int64_t end_ns = facts_.span(node).end_ns;
      const Moment made = sequence_.blocks[i].alloc;
      sequence_.blocks[i].size_bytes = 4 * elements;
      sequence_.blocks[i].alloc = {end_ns, next_order()};
      add(2 * elements, made, {end_ns, next_order()}, node);
      return;
    }
  }

  // ---- Blocks that are freed sooner ---------------------------------------------------------------------------------------

  void shorten() {
    for (const auto& [i, uses] : uses_) {
      GpuBlock& block = sequence_.blocks[i];
      const int64_t freed = freed_ns(i);
      if (!block.kept() || block.role != Role::none || freed == INT64_MAX || block.free.time_ns != freed) continue;
      bool kept_by_cast = false;
      int64_t until_ns = INT64_MIN, last_use_ns = INT64_MIN;
      SpanIndex last = kNoSpan;
      for (const Use& use : uses) {
        const Operator& op = operators_[use.op];
        const bool saves = op.has_backward() && saves_inputs(facts_.name(op.span));
        kept_by_cast = kept_by_cast || (use.cast && saves && op.nodes_begin_ns <= freed && freed <= op.nodes_end_ns);
        if (!use.cast && saves) until_ns = std::max(until_ns, op.nodes_end_ns);
        if (facts_.span(op.span).end_ns > last_use_ns) {
          last_use_ns = facts_.span(op.span).end_ns;
          last = op.span;
        }
      }
      if (!kept_by_cast) continue;
      if (until_ns == INT64_MIN) until_ns = std::max(last_use_ns, end_of_use(block.span, last));
      if (until_ns >= freed) continue;
      block.free = {until_ns, next_order()};
      block.rule = "mixed_precision";
    }
  }

  // The end of the user's call in the innermost function that contains both the maker and the user.
  int64_t end_of_use(SpanIndex maker, SpanIndex user) const {
    std::unordered_set<SpanIndex> above;
    for (SpanIndex at = maker; at != kNoSpan; at = facts_.tree.parent[at]) above.insert(at);
    SpanIndex at = user;
    while (facts_.tree.parent[at] != kNoSpan && !above.contains(facts_.tree.parent[at])) at = facts_.tree.parent[at];
    return facts_.tree.parent[at] == kNoSpan ? facts_.span(user).end_ns : facts_.span(at).end_ns;
  }

  void resize() {
    for (size_t i = 0; i < floats_.size(); ++i) {
      GpuBlock& block = sequence_.blocks[i];
      if (!floats_[i] || !low_[i]) continue;
      block.size_bytes /= 2;
      block.rule = i < sequence_.traced ? "mixed_precision" : block.rule;
    }
  }

  const ProfileFacts& facts_;
  const LowerPrecision& precision_;
  Sequence& sequence_;
  std::vector<bool> floats_, low_;  // for each block that was there before this rule
  std::unordered_set<int64_t> parameter_bytes_;
  std::vector<Operator> operators_;  // in order
  std::vector<uint32_t> numbered_;   // operators with a number; the numbers ascend
  std::vector<SpanIndex> nodes_;
  std::vector<std::pair<bool, uint32_t>> order_;  // (is it a node?, index), ordered by time
  std::map<int64_t, std::vector<uint32_t>> by_bytes_;
  std::map<std::tuple<int32_t, int32_t, size_t>, uint32_t> weight_casts_;  // (module, product, place) -> added block
  std::unordered_map<SpanIndex, int32_t> products_in_;                     // for each module's call, the number of products so far
  std::unordered_map<uint32_t, std::vector<Use>> uses_;
  std::unordered_map<uint32_t, Copy> copies_;
  std::unordered_set<uint32_t> downcasts_;
  std::unordered_map<uint32_t, uint32_t> maker_;  // block -> operator
  std::unordered_set<uint32_t> cast_results_;     // gradients that are results of a cast
  std::vector<uint32_t> waiting_;                 // casts that the next node will use
  int64_t order_of_added_ = -(int64_t{1} << 40);
};

}  // namespace

void use_lower_precision(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence) {
  const LowerPrecision precision = lower_precision_of(facts, options);
  if (precision.wanted) MixedPrecision(facts, precision, sequence).apply();
}

}  // namespace gpucast

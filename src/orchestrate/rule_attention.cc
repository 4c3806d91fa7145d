// Scaled dot product attention. If the CPU has no kernel for a case (dropout, for example), it computes the products and the softmax one by
// one and keeps them for backward. CUDA's memory-efficient kernel keeps only the output and the logarithm of the sum of exponentials
// (ATen/native/transformers/cuda/attention.cu, attention_backward.cu, of PyTorch).
//
// Forward: these two replace the blocks that the operator keeps. Backward: the one node that CUDA has replaces autograd's nodes of the
// operator, which are found by their sequence numbers. CUDA's output is [batch, sequence, heads, head size] in memory, the CPU's is [batch,
// heads, sequence, head size]. So copies that only reorder it are removed.

#include <algorithm>

#include "src/orchestrate/autocast_lists.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

constexpr int64_t kAlignLogsumexp = 32;                  // PyTorchMemEffAttention::AttentionKernel::kAlignLSE
constexpr int64_t kFlashRows = 128, kFlashColumns = 32;  // flash_api.cpp rounds up to these

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

struct Shape {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_size = 0, value_size = 0;
  int64_t element_bytes = 0;
  int64_t cuda_element_bytes = 0;  // 2 in lower precision
  bool packed = false;             // query, key and value are views of one tensor
  bool pairs = false;              // key and value are views of one tensor
  bool heads_first = false;        // the query is [batch, heads, sequence, head size] in memory
  bool sequence_first = false;     // the query is [sequence, batch, heads, head size] in memory: nn.MultiheadAttention
  bool masked = false;
  bool grouped = false;  // several query heads share a key and value head
};

bool shape_of(const ProfileFacts& facts, SpanIndex op, Shape* out) {
  const auto& inputs = facts.dims(op).inputs;
  const auto& types = facts.types(op);
  if (inputs.size() < 3 || types.empty() || inputs[0].size() != 4 || inputs[1].size() != 4 || inputs[2].size() != 4) return false;
  out->batch = inputs[0][0];
  out->heads = inputs[0][1];
  out->queries = inputs[0][2];
  out->head_size = inputs[0][3];
  out->keys = inputs[1][2];
  out->value_size = inputs[2][3];
  out->element_bytes = element_bytes(types[0]);
  const auto& strides = facts.strides(op).inputs;
  out->sequence_first =
      !strides.empty() && strides[0].size() == 4 && strides[0][0] == out->heads * strides[0][1] && strides[0][2] > strides[0][0];
  // Views of one tensor: a row holds query, key and value together.
  out->packed = !out->sequence_first && out->queries == out->keys && out->head_size == out->value_size && strides.size() >= 3 &&
                strides[0].size() == 4 && strides[0] == strides[1] && strides[1] == strides[2] &&
                strides[0][2] >= 3 * out->heads * out->head_size;
  out->pairs =
      strides.size() >= 3 && strides[1].size() == 4 && strides[1] == strides[2] && strides[1][2] >= 2 * out->heads * out->head_size;
  out->cuda_element_bytes = out->element_bytes;
  out->heads_first = strides.size() >= 3 && strides[0].size() == 4 && strides[0][1] > strides[0][2];
  out->grouped = inputs[1][1] != out->heads;
  out->masked = inputs.size() > 3 && !inputs[3].empty();
  return out->element_bytes > 0;
}

// Whether the flash attention kernel runs (flash_api.cpp of PyTorch): lower precision, no mask, Ampere and newer.
bool takes_flash(const ProfileFacts& facts, const Shape& shape) {
  return shape.cuda_element_bytes == 2 && !shape.masked && facts.gpu.compute_major >= 8 && shape.head_size == shape.value_size &&
         shape.head_size <= 256;
}

// Whether the memory-efficient kernel runs otherwise. It has no grouped queries and needs aligned rows (sdp_utils.cpp,
// minimum_gemm_alignment). If neither kernel runs, CUDA computes the operator one step at a time, like the CPU.
bool takes_efficient(const ProfileFacts& facts, const Shape& shape) {
  const bool lower = shape.cuda_element_bytes == 2;
  const int64_t alignment = facts.gpu.compute_major >= 8 ? (lower ? 8 : 4) : (facts.gpu.compute_major == 7 && lower ? 8 : 1);
  return !shape.grouped && shape.head_size % alignment == 0 && shape.value_size % alignment == 0;
}

// The scratch memory in which the backward kernel sums the query's gradient: tiles of rows by 64 columns of floats, and a lock for each
// tile. Tiles have 128 rows if the head is large and a block can have as much shared memory as on sm_80 (observed on the virtual GPU).
int64_t gradient_scratch_bytes(const Shape& shape, const Gpu& gpu) {
  const int64_t rows = shape.head_size > 64 && gpu.shared_memory_per_block_optin_bytes > 128 * 1024 ? 128 : 64;
  const int64_t tiles = (shape.queries + rows - 1) / rows * ((shape.head_size + 63) / 64);
  return shape.batch * shape.heads * tiles * (rows * 64 * 4 + 16);
}

class AttentionRule {
 public:
  AttentionRule(const ProfileFacts& facts, const LowerPrecision& precision, Sequence* sequence)
      : facts_(facts), precision_(precision), sequence_(*sequence) {}

  void apply() {
    for (SpanIndex i = 0; i < facts_.trace.spans.size(); ++i) {
      if (facts_.is_op(i) && facts_.name(i) == "aten::scaled_dot_product_attention") replace_attention(i);
    }
  }

 private:
  void drop(uint32_t i) { sequence_.blocks[i].drop(Fate::other_kernel, "attention"); }
  void add(int64_t bytes, Moment alloc, Moment free, SpanIndex span) { sequence_.add(bytes, alloc, free, span, "attention"); }

  void replace_attention(SpanIndex op) {
    Shape shape;
    if (!shape_of(facts_, op, &shape)) return;
    const ProfileSpan& span = facts_.span(op);
    if (precision_.products_at(span.begin_ns) && shape.element_bytes == 4) shape.cuda_element_bytes = 2;
    const bool flash = takes_flash(facts_, shape);
    if (!flash && !takes_efficient(facts_, shape)) return;
    const int64_t output_bytes = shape.batch * shape.heads * shape.queries * shape.value_size * shape.element_bytes;
    // The output is the last block of its size that outlives the operator.
    const std::vector<uint32_t> made = kept_between(facts_, sequence_, span.begin_ns, span.end_ns);
    uint32_t output = UINT32_MAX;
    Moment saved_until = facts_.end_of(op);
    for (const uint32_t i : made) {
      const GpuBlock& block = sequence_.blocks[i];
      if (block.free.time_ns <= span.end_ns) continue;
      if (block.size_bytes == output_bytes) output = i;
    }
    if (output == UINT32_MAX) return;
    const std::vector<SpanIndex> backward = backward_nodes(op);
    int64_t backward_begin_ns = 0, backward_end_ns = 0;
    for (const SpanIndex node : backward) {
      backward_begin_ns = backward_begin_ns == 0 ? facts_.span(node).begin_ns : std::min(backward_begin_ns, facts_.span(node).begin_ns);
      backward_end_ns = std::max(backward_end_ns, facts_.span(node).end_ns);
    }
    for (const uint32_t i : made) {
      if (i != output) drop(i);
    }
    if (!backward.empty() && !shape.packed) keep_inputs(shape, op, {backward_end_ns, 0});
    GpuBlock& kept = sequence_.blocks[output];
    kept.rule = "attention";
    kept.alloc = facts_.begin_of(op);
    Moment output_free = kept.free;
    const bool cpu_kernel =
        op + 1 < facts_.trace.spans.size() && facts_.name(op + 1) == "aten::_scaled_dot_product_flash_attention_for_cpu";
    // The flash kernel's output has the memory order of the query.
    const bool reordered = shape.sequence_first && !flash;  // CUDA reorders it to [sequence, batch, ...] too
    if (reordered && cpu_kernel) {
      // The CPU's kernel returns its output in that order. The following projection keeps the copy.
      const Moment needed = backward.empty() ? output_free : std::min(output_free, Moment{backward_begin_ns, INT64_MIN / 2});
      add(output_bytes, {span.end_ns, 1}, needed, op);
      output_free = {span.end_ns, 2};
    }
    if (!reordered && (!flash || !shape.heads_first)) output_free = std::max(output_free, merge_copy(op, output_bytes));
    if (!backward.empty()) {
      saved_until = {backward_end_ns, 1};
      output_free = std::max(output_free, Moment{backward_end_ns, 2});  // the output is freed last
      add(4 * shape.batch * shape.heads * (flash ? shape.queries : round_up(shape.queries, kAlignLogsumexp)),
          {facts_.begin_of(op).time_ns, 0}, saved_until, op);
      replace_gradients(shape, backward, backward_begin_ns, backward_end_ns, !cpu_kernel);
    }
    sequence_.blocks[output].free = output_free;
  }

  // The autograd nodes of the operators inside, in the order they ran.
  std::vector<SpanIndex> backward_nodes(SpanIndex op) const {
    const int64_t first = facts_.span(op).sequence_number;
    if (first < 0) return {};
    int64_t end = -1;  // the next number after the operator
    for (SpanIndex i = op + 1; i < facts_.trace.spans.size() && end < 0; ++i) {
      const ProfileSpan& span = facts_.span(i);
      if (span.begin_ns >= facts_.span(op).end_ns && span.thread == facts_.span(op).thread && span.sequence_number >= first)
        end = span.sequence_number;
    }
    std::vector<SpanIndex> out;
    for (int64_t number = first; number < end; ++number) {
      for (const SpanIndex node : facts_.nodes_of(number)) {
        if (facts_.span(node).begin_ns > facts_.span(op).end_ns) out.push_back(node);
      }
    }
    return out;
  }

  // A transpose(1, 2) of the output followed by contiguous() or reshape() copies it on the CPU only. Removes the copy and returns when it
  // was freed.
  Moment merge_copy(SpanIndex op, int64_t bytes) {
    Moment until = {INT64_MIN, 0};
    for (SpanIndex i = op + 1; i < facts_.trace.spans.size(); ++i) {
      const ProfileSpan& span = facts_.span(i);
      if (span.begin_ns < facts_.span(op).end_ns || span.thread != facts_.span(op).thread || span.kind != SpanKind::op) continue;
      if (!is_plumbing(facts_.name(i))) break;
      if (facts_.name(i) != "aten::clone") continue;
      for (const uint32_t copy : kept_between(facts_, sequence_, span.begin_ns, span.end_ns)) {
        if (sequence_.blocks[copy].size_bytes != bytes) continue;
        until = sequence_.blocks[copy].free;
        drop(copy);
        return until;
      }
    }
    return until;
  }

  // CUDA keeps query, key and value for backward. If the CPU computes the operator one step at a time, it keeps scaled copies instead and
  // frees the originals soon. An original is a block of their size that is alive when the operator runs and freed by the end of its module.
  void keep_inputs(const Shape& shape, SpanIndex op, Moment until) {
    const ProfileSpan& span = facts_.span(op);
    const SpanIndex module = facts_.module_of(op);
    if (module == kNoSpan) return;
    const int64_t head_bytes = shape.batch * shape.heads * shape.element_bytes;
    const int64_t sizes[] = {head_bytes * shape.queries * shape.head_size, head_bytes * shape.keys * shape.head_size,
                             head_bytes * shape.keys * shape.value_size};
    int found = 0;
    for (const uint32_t i : kept_between(facts_, sequence_, facts_.span(module).begin_ns, span.begin_ns - 1)) {
      GpuBlock& block = sequence_.blocks[i];
      // One block with all three, which the CPU keeps only for the value.
      if (shape.sequence_first && block.size_bytes == sizes[0] + sizes[1] + sizes[2] && block.free > Moment{span.end_ns, 0} &&
          block.free < until) {
        block.free = until;
        block.rule = "attention";
        continue;
      }
      const bool key_and_value = shape.pairs && block.size_bytes == sizes[1] + sizes[2];
      const bool of_input = key_and_value || std::find(std::begin(sizes), std::end(sizes), block.size_bytes) != std::end(sizes);
      if (!of_input || block.free.time_ns <= span.end_ns || block.free.time_ns > facts_.span(module).end_ns || found == 3) continue;
      block.free = until;
      block.rule = "attention";
      found += key_and_value ? 2 : 1;
    }
  }

  void replace_gradients(const Shape& shape, const std::vector<SpanIndex>& nodes, int64_t begin_ns, int64_t end_ns, bool written_out) {
    const int64_t query_bytes = shape.batch * shape.heads * shape.queries * shape.head_size * shape.cuda_element_bytes;
    const int64_t key_bytes = shape.batch * shape.heads * shape.keys * shape.head_size * shape.cuda_element_bytes;
    const int64_t value_bytes = shape.batch * shape.heads * shape.keys * shape.value_size * shape.cuda_element_bytes;
    std::vector<uint32_t> results;
    for (const SpanIndex node : nodes) {
      for (const uint32_t i : kept_between(facts_, sequence_, facts_.span(node).begin_ns, facts_.span(node).end_ns)) {
        if (sequence_.blocks[i].free.time_ns > end_ns) {
          results.push_back(i);
        } else {
          drop(i);
        }
      }
    }
    // Later copies that only reorder a gradient into the order of its input.
    std::vector<Moment> frees;
    frees.reserve(results.size());
    for (const uint32_t i : results) frees.push_back(sequence_.blocks[i].free);
    size_t merged = 0;
    for (SpanIndex i = nodes.front(); i < facts_.trace.spans.size() && merged < results.size(); ++i) {
      const ProfileSpan& span = facts_.span(i);
      if (span.begin_ns < end_ns || span.kind != SpanKind::op || span.thread != facts_.span(nodes.front()).thread) continue;
      if (facts_.computing_op(i) == i && facts_.is_kernel(i)) break;
      if (facts_.name(i) != "aten::clone") continue;
      const auto& dims = facts_.dims(i).inputs;
      const bool ordered = !dims.empty() && dims[0].size() == 4 && dims[0][0] == shape.batch && dims[0][2] == shape.heads;
      if (!ordered) continue;
      for (const uint32_t copy : kept_between(facts_, sequence_, span.begin_ns, span.end_ns)) {
        const GpuBlock& block = sequence_.blocks[copy];
        // The gradient is freed after the copy.
        size_t source = SIZE_MAX;
        for (size_t r = 0; r < results.size(); ++r) {
          if (sequence_.blocks[results[r]].size_bytes != block.size_bytes || frees[r] != sequence_.blocks[results[r]].free) continue;
          if (source == SIZE_MAX || frees[r] < frees[source]) source = r;
        }
        if (source == SIZE_MAX) continue;
        frees[source] = block.free;
        drop(copy);
        ++merged;
      }
    }
    Moment last = {end_ns, 1};
    for (const Moment& free : frees) last = std::max(last, free);
    const auto free_of = [&](size_t r) { return r < frees.size() ? frees[r] : last; };
    for (const uint32_t i : results) drop(i);
    int64_t order = -(int64_t{1} << 20);
    const auto next = [&] { return Moment{begin_ns, order++}; };
    const bool flash = takes_flash(facts_, shape);
    const Moment output_copied = next();
    const bool reordered = shape.sequence_first && !flash;
    if (shape.packed && !flash) {
      add(query_bytes + key_bytes + value_bytes, next(), last, nodes.front());
    } else if (reordered && written_out) {
      // Each gradient is copied twice to get back to [sequence, batch * heads, head size]; the CPU needs only the second copy.
      std::sort(frees.begin(), frees.end());
      const Moment made[] = {next(), next(), next()};  // for the query, the key, the value
      const int64_t bytes[] = {query_bytes, key_bytes, value_bytes};
      constexpr int64_t kBehindSaved = 8;
      for (int i = 2; i >= 0; --i) {
        const int64_t at = kBehindSaved + int64_t{2} * (2 - i);
        add(bytes[i], made[i], {end_ns, at + 1}, nodes.front());
        add(bytes[i], {end_ns, at}, free_of(static_cast<size_t>(2 - i)), nodes.front());
      }
    } else {
      add(query_bytes, next(), free_of(0), nodes.front());
      add(key_bytes, next(), free_of(1), nodes.front());
      add(value_bytes, next(), free_of(2), nodes.front());
    }
    if (flash) {
      // The output in the kernel's order, sums of output times gradient, and the query's gradient in fp32.
      const int64_t rows = shape.batch * shape.heads * round_up(shape.queries, kFlashRows);
      const Moment sum = next(), scratch = next(), done = next();
      if (shape.heads_first) add(query_bytes, output_copied, done, nodes.front());
      add(4 * rows, sum, done, nodes.front());
      add(4 * rows * round_up(shape.head_size, kFlashColumns), scratch, done, nodes.front());
      return;
    }
    // The product of output and its gradient, its sum, and the sum reordered; then the kernel's scratch memory.
    const int64_t product_bytes = shape.batch * shape.heads * shape.queries * shape.value_size * 4;
    const int64_t sum_bytes = shape.batch * shape.heads * shape.queries * 4;
    const Moment product = next(), sum = next(), ordered = next(), sum_freed = next(), product_freed = next(), scratch = next(),
                 ordered_freed = next(), scratch_freed = next(), output_copy_freed = next();
    // The output's gradient, made contiguous.
    if (reordered) add(product_bytes, output_copied, output_copy_freed, nodes.front());
    add(product_bytes, product, product_freed, nodes.front());
    add(sum_bytes, sum, sum_freed, nodes.front());
    add(sum_bytes, ordered, ordered_freed, nodes.front());
    add(gradient_scratch_bytes(shape, facts_.gpu), scratch, scratch_freed, nodes.front());
  }

  const ProfileFacts& facts_;
  const LowerPrecision& precision_;
  Sequence& sequence_;
};

}  // namespace

void use_cuda_attention(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence) {
  const LowerPrecision precision = lower_precision_of(facts, options);
  AttentionRule(facts, precision, sequence).apply();
}

}  // namespace gpucast

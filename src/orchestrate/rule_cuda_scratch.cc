// Temporaries of CUDA's kernels that the CPU's kernels do not have.
//
//   _softmax_backward_data   the product of output and gradient (ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out);
//                            log_softmax needs none
//   gradient of an embedding over many indices, and of every EmbeddingBag: the indices are sorted, and a buffer collects
//                            partial sums of rows with the same index (cuda/EmbeddingBackwardKernel.cu). Its size is the
//                            worst case; some bytes an index for CUB's sort are not modelled

#include <algorithm>

#include "src/base/embedding_gradient.h"
#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

void add_embedding_scratch(const ProfileFacts& facts, SpanIndex op, bool bag, Sequence* sequence) {
  const auto& inputs = facts.dims(op).inputs;
  const auto& concrete = facts.concrete(op);
  const size_t rows_at = bag ? 5 : 2;
  if (inputs.size() < 2 || concrete.size() <= rows_at || inputs[0].empty()) return;
  const int64_t indices = numel(inputs[1]), width = inputs[0].back(), rows = std::atoll(concrete[rows_at].c_str());
  if (rows <= 0 || (!bag && indices <= kFewIndices)) return;
  const bool doubles = !facts.types(op).empty() && facts.types(op)[0] == "double";
  const auto [segments, partials] = embedding_sums(indices, rows);
  const int64_t sizes[] = {8 * indices, 8 * segments, 8 * segments, 8 * partials, partials * width * (doubles ? 8 : 4)};
  const auto add = [&](int64_t bytes, Moment alloc, Moment free) { sequence->add(bytes, alloc, free, op, "cuda_scratch"); };
  const int64_t end_ns = facts.span(op).end_ns;
  int64_t order = INT64_MAX / 2;
  const int64_t freed = order + 32;
  // The sorted indices and their origins, before the gradient itself.
  for (int i = 0; i < 2; ++i) add(8 * indices, {facts.span(op).begin_ns, i}, {end_ns, freed + 16 - i});
  for (const int64_t bytes : sizes) {
    add(bytes, {end_ns, order}, {end_ns, freed - (order - INT64_MAX / 2)});
    ++order;
  }
}

}  // namespace

void add_cuda_scratch(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  for (size_t i = 0; i < sequence->traced; ++i) {
    const GpuBlock& result = sequence->blocks[i];
    if (!result.kept() || facts.cpu.blocks[i].before_start()) continue;
    const SpanIndex op = facts.computing_op(result.span);
    // CUDA does not run single operators where another rule has replaced them by a kernel (attention, for example).
    if (op == kNoSpan || facts.name(op) != "aten::_softmax_backward_data") continue;
    const int64_t end_ns = facts.span(op).end_ns;
    sequence->add(result.size_bytes, {end_ns, INT64_MAX / 2}, {end_ns, INT64_MAX / 2 + 1}, op, "cuda_scratch");
  }
  for (SpanIndex i = 0; i < facts.trace.spans.size(); ++i) {
    if (!facts.is_op(i)) continue;
    if (facts.name(i) == "aten::embedding_dense_backward") add_embedding_scratch(facts, i, false, sequence);
    if (facts.name(i) == "aten::_embedding_bag_dense_backward") add_embedding_scratch(facts, i, true, sequence);
  }
}

}  // namespace gpucast

#include "src/orchestrate/autocast_lists.h"

#include <algorithm>
#include <unordered_set>

namespace gpucast {
namespace {

using Names = std::unordered_set<std::string_view>;

constexpr std::string_view kNamespace = "aten::", kAutocastMark = "gpucast.autocast#";

// "aten::linear" -> "linear"; "" for another namespace.
std::string_view bare(std::string_view name) {
  return name.substr(0, kNamespace.size()) == kNamespace ? name.substr(kNamespace.size()) : std::string_view();
}

void add_region(int64_t begin_ns, int64_t end_ns, std::vector<LowerPrecision::Region>* regions) {
  if (!regions->empty() && begin_ns <= regions->back().end_ns) {
    regions->back().end_ns = std::max(regions->back().end_ns, end_ns);
  } else {
    regions->push_back({begin_ns, end_ns});
  }
}

}  // namespace

CastPolicy cast_policy(std::string_view operator_name) {
  static const Names kLower = {"_convolution",
                               "conv1d",
                               "conv2d",
                               "conv3d",
                               "conv_tbc",
                               "conv_transpose1d",
                               "conv_transpose2d",
                               "conv_transpose3d",
                               "convolution",
                               "prelu",
                               "addmm",
                               "addmv",
                               "addr",
                               "matmul",
                               "einsum",
                               "mm",
                               "mv",
                               "linalg_vecdot",
                               "linear",
                               "addbmm",
                               "baddbmm",
                               "bmm",
                               "chain_matmul",
                               "linalg_multi_dot",
                               "_thnn_fused_lstm_cell",
                               "_thnn_fused_gru_cell",
                               "lstm_cell",
                               "gru_cell",
                               "rnn_tanh_cell",
                               "rnn_relu_cell",
                               "_scaled_dot_product_flash_attention",
                               "scaled_dot_product_attention"};
  static const Names kFp32 = {"acos",
                              "asin",
                              "cosh",
                              "erfinv",
                              "exp",
                              "expm1",
                              "log",
                              "log10",
                              "log2",
                              "log1p",
                              "reciprocal",
                              "rsqrt",
                              "sinh",
                              "tan",
                              "pow",
                              "softplus",
                              "layer_norm",
                              "native_layer_norm",
                              "rms_norm",
                              "group_norm",
                              "frobenius_norm",
                              "nuclear_norm",
                              "cosine_similarity",
                              "poisson_nll_loss",
                              "cosine_embedding_loss",
                              "nll_loss",
                              "nll_loss2d",
                              "hinge_embedding_loss",
                              "kl_div",
                              "l1_loss",
                              "smooth_l1_loss",
                              "huber_loss",
                              "mse_loss",
                              "margin_ranking_loss",
                              "multilabel_margin_loss",
                              "soft_margin_loss",
                              "triplet_margin_loss",
                              "multi_margin_loss",
                              "binary_cross_entropy_with_logits",
                              "dist",
                              "pdist",
                              "cdist",
                              "renorm",
                              "logsumexp",
                              "upsample_nearest1d",
                              "_upsample_nearest_exact1d",
                              "upsample_nearest2d",
                              "_upsample_nearest_exact2d",
                              "upsample_nearest3d",
                              "_upsample_nearest_exact3d",
                              "upsample_linear1d",
                              "upsample_bilinear2d",
                              "_upsample_bilinear2d_aa",
                              "upsample_trilinear3d",
                              "upsample_bicubic2d",
                              "_upsample_bicubic2d_aa"};
  static const Names kFp32Result = {"prod", "softmax", "log_softmax", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm",
                                    "sum",  "norm"};
  const std::string_view name = bare(operator_name);
  if (kLower.contains(name)) return CastPolicy::lower;
  if (kFp32Result.contains(name)) return CastPolicy::fp32_result;
  return kFp32.contains(name) ? CastPolicy::fp32 : CastPolicy::promote;
}

bool is_seen_through(std::string_view operator_name) {
  static const Names kNames = {"cross_entropy_loss", "nll_loss_nd", "instance_norm", "lstm",   "gru",
                               "rnn_tanh",           "rnn_relu",    "upsample",      "type_as"};
  return kNames.contains(bare(operator_name));
}

bool saves_inputs(std::string_view operator_name) {
  static const Names kNames = {"convolution",
                               "addmv",
                               "addr",
                               "mv",
                               "dot",
                               "addbmm",
                               "mul",
                               "div",
                               "pow",
                               "log",
                               "log2",
                               "log10",
                               "log1p",
                               "abs",
                               "sin",
                               "cos",
                               "erf",
                               "gelu",
                               "silu",
                               "mish",
                               "hardswish",
                               "hardsigmoid",
                               "leaky_relu",
                               "elu",
                               "softplus",
                               "logsumexp",
                               "batch_norm",
                               "layer_norm",
                               "native_layer_norm",
                               "rms_norm",
                               "group_norm",
                               "nll_loss",
                               "nll_loss2d",
                               "mse_loss",
                               "l1_loss",
                               "smooth_l1_loss",
                               "huber_loss",
                               "kl_div",
                               "binary_cross_entropy",
                               "binary_cross_entropy_with_logits",
                               "max_pool1d",
                               "max_pool2d",
                               "max_pool3d",
                               "avg_pool2d",
                               "avg_pool3d",
                               "adaptive_max_pool2d",
                               "norm",
                               "linalg_vector_norm",
                               "cumprod",
                               "prod",
                               "cosine_similarity"};
  return cast_policy(operator_name) == CastPolicy::lower || kNames.contains(bare(operator_name));
}

bool saves_result(std::string_view operator_name) {
  static const Names kNames = {"softmax", "log_softmax", "tanh", "sigmoid", "exp", "sqrt", "rsqrt", "reciprocal", "relu"};
  return kNames.contains(bare(operator_name));
}

int LowerPrecision::region_at(int64_t time_ns) const {
  const auto find = [&](const std::vector<Region>& list) {
    const auto after = std::partition_point(list.begin(), list.end(), [&](const Region& region) { return region.begin_ns <= time_ns; });
    return after == list.begin() || std::prev(after)->end_ns <= time_ns ? -1 : static_cast<int>(std::prev(after) - list.begin());
  };
  return find(off) >= 0 ? -1 : find(regions);
}

LowerPrecision lower_precision_of(const ProfileFacts& facts, const OrchestrateOptions& options) {
  LowerPrecision out;
  bool marked_fp16 = false;
  for (SpanIndex i = 0; i < facts.trace.spans.size(); ++i) {
    const ProfileSpan& span = facts.span(i);
    if (span.kind != SpanKind::annotation || facts.name(i).substr(0, kAutocastMark.size()) != kAutocastMark) continue;
    const std::string_view type = facts.name(i).substr(kAutocastMark.size());
    marked_fp16 = marked_fp16 || type == "float16";
    add_region(span.begin_ns, span.end_ns, type == "off" ? &out.off : &out.regions);
  }
  const bool traced = !out.regions.empty() || !facts.metadata.autocast.empty();
  out.wanted = traced || !options.dtype.empty();
  out.fp16 = options.dtype.empty() ? facts.metadata.autocast.find("float16") == 0 || marked_fp16 : options.dtype == "fp16";
  out.amp = options.dtype.empty() ? traced : options.amp;
  if (!out.amp) out.regions.clear();
  if (!out.amp || !out.regions.empty()) return out;
  // Without marks, autocast is assumed from each forward until its backward, including the loss.
  for (const PhaseWindow& forward : facts.phases.forwards) {
    const std::vector<PhaseWindow>& backwards = facts.phases.backwards;
    const auto next = std::partition_point(backwards.begin(), backwards.end(),
                                           [&](const PhaseWindow& backward) { return backward.begin_ns < forward.end_ns; });
    add_region(forward.begin_ns, next == backwards.end() ? forward.end_ns : next->begin_ns, &out.regions);
  }
  return out;
}

}  // namespace gpucast

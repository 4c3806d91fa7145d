#include "src/work/operator_forms.h"

#include <array>
#include <string_view>

#include "src/base/sorted_rows.h"

namespace gpucast {
namespace {

struct OperatorRow {
  std::string_view name;  // without its namespace and the "_" of in-place operators
  OperatorForm form;
};

// clang-format off
constexpr std::array kOperators = std::to_array<OperatorRow>({
    {"_cat", OperatorForm::copy},
    {"_embedding_bag", OperatorForm::indexing},
    {"_fused_dropout", OperatorForm::elementwise},
    {"_index_put_impl", OperatorForm::indexing},
    {"_local_scalar_dense", OperatorForm::reduction},
    {"_to_copy", OperatorForm::copy},
    {"_unique2", OperatorForm::indexing},
    {"_weight_norm_interface", OperatorForm::reduction},
    {"abs", OperatorForm::elementwise},
    {"add", OperatorForm::elementwise},
    {"addcdiv", OperatorForm::elementwise},
    {"addcmul", OperatorForm::elementwise},
    {"all", OperatorForm::reduction_of_one},
    {"amax", OperatorForm::reduction},
    {"amin", OperatorForm::reduction},
    {"aminmax", OperatorForm::reduction},
    {"any", OperatorForm::reduction_of_one},
    {"arange", OperatorForm::fill},
    {"argmax", OperatorForm::reduction_of_one},
    {"argmin", OperatorForm::reduction_of_one},
    {"argsort", OperatorForm::indexing},
    {"atan2", OperatorForm::elementwise},
    {"bernoulli", OperatorForm::fill},
    {"binary_cross_entropy", OperatorForm::reduction},
    {"binary_cross_entropy_with_logits", OperatorForm::elementwise},
    {"bincount", OperatorForm::indexing},
    {"bitwise_and", OperatorForm::elementwise},
    {"bitwise_not", OperatorForm::elementwise},
    {"bitwise_or", OperatorForm::elementwise},
    {"cat", OperatorForm::copy},
    {"ceil", OperatorForm::elementwise},
    {"celu", OperatorForm::elementwise},
    {"clamp", OperatorForm::elementwise},
    {"clamp_max", OperatorForm::elementwise},
    {"clamp_min", OperatorForm::elementwise},
    {"clone", OperatorForm::copy},
    {"contiguous", OperatorForm::copy},
    {"copy", OperatorForm::copy_to},
    {"cos", OperatorForm::elementwise},
    {"count_nonzero", OperatorForm::reduction},
    {"cumprod", OperatorForm::indexing},
    {"cumsum", OperatorForm::indexing},
    {"div", OperatorForm::elementwise},
    {"dot", OperatorForm::reduction},
    {"dropout", OperatorForm::elementwise},
    {"elu", OperatorForm::elementwise},
    {"elu_backward", OperatorForm::elementwise},
    {"embedding", OperatorForm::rows_by_index},
    {"embedding_bag", OperatorForm::indexing},
    {"embedding_dense_backward", OperatorForm::embedding_gradient},
    {"eq", OperatorForm::comparison},
    {"erf", OperatorForm::elementwise},
    {"exp", OperatorForm::elementwise},
    {"expm1", OperatorForm::elementwise},
    {"exponential", OperatorForm::fill},
    {"eye", OperatorForm::fill},
    {"fill", OperatorForm::fill},
    {"flip", OperatorForm::copy},
    {"floor", OperatorForm::elementwise},
    {"fmod", OperatorForm::elementwise},
    {"full", OperatorForm::fill},
    {"gather", OperatorForm::indexing},
    {"ge", OperatorForm::comparison},
    {"gelu", OperatorForm::elementwise},
    {"gelu_backward", OperatorForm::elementwise},
    {"glu", OperatorForm::half},
    {"glu_backward", OperatorForm::elementwise},
    {"gt", OperatorForm::comparison},
    {"hardsigmoid", OperatorForm::elementwise},
    {"hardsigmoid_backward", OperatorForm::elementwise},
    {"hardswish", OperatorForm::elementwise},
    {"hardswish_backward", OperatorForm::elementwise},
    {"hardtanh", OperatorForm::elementwise},
    {"hardtanh_backward", OperatorForm::elementwise},
    {"histc", OperatorForm::indexing},
    {"huber_loss", OperatorForm::loss},
    {"index", OperatorForm::index},
    {"index_add", OperatorForm::indexing},
    {"index_copy", OperatorForm::indexing},
    {"index_fill", OperatorForm::indexing},
    {"index_put", OperatorForm::indexing},
    {"index_select", OperatorForm::rows_by_index},
    {"isfinite", OperatorForm::comparison},
    {"isinf", OperatorForm::comparison},
    {"isnan", OperatorForm::comparison},
    {"kl_div", OperatorForm::reduction},
    {"l1_loss", OperatorForm::loss},
    {"le", OperatorForm::comparison},
    {"leaky_relu", OperatorForm::elementwise},
    {"leaky_relu_backward", OperatorForm::elementwise},
    {"lerp", OperatorForm::elementwise},
    {"linalg_vector_norm", OperatorForm::reduction},
    {"linspace", OperatorForm::fill},
    {"log", OperatorForm::elementwise},
    {"log1p", OperatorForm::elementwise},
    {"log_normal", OperatorForm::fill},
    {"log_sigmoid_backward", OperatorForm::elementwise},
    {"log_sigmoid_forward", OperatorForm::elementwise},
    {"logical_and", OperatorForm::comparison},
    {"logical_not", OperatorForm::comparison},
    {"logical_or", OperatorForm::comparison},
    {"logical_xor", OperatorForm::elementwise},
    {"logsumexp", OperatorForm::reduction},
    {"lt", OperatorForm::comparison},
    {"masked_fill", OperatorForm::elementwise},
    {"masked_scatter", OperatorForm::indexing},
    {"masked_select", OperatorForm::indexing},
    {"max", OperatorForm::reduction_of_one},
    {"maximum", OperatorForm::elementwise},
    {"mean", OperatorForm::reduction},
    {"median", OperatorForm::reduction_of_one},
    {"min", OperatorForm::reduction_of_one},
    {"minimum", OperatorForm::elementwise},
    {"mish", OperatorForm::elementwise},
    {"mish_backward", OperatorForm::elementwise},
    {"mse_loss", OperatorForm::loss},
    {"mse_loss_backward", OperatorForm::elementwise},
    {"mul", OperatorForm::elementwise},
    {"nan_to_num", OperatorForm::elementwise},
    {"nansum", OperatorForm::reduction},
    {"native_dropout", OperatorForm::dropout_with_mask},
    {"native_dropout_backward", OperatorForm::elementwise},
    {"ne", OperatorForm::comparison},
    {"neg", OperatorForm::elementwise},
    {"nll_loss2d_backward", OperatorForm::loss_by_index},
    {"nll_loss2d_forward", OperatorForm::loss_by_index},
    {"nll_loss_backward", OperatorForm::loss_by_index},
    {"nll_loss_forward", OperatorForm::loss_by_index},
    {"nonzero", OperatorForm::indexing},
    {"norm", OperatorForm::reduction},
    {"normal", OperatorForm::fill},
    {"one_hot", OperatorForm::indexing},
    {"ones", OperatorForm::fill},
    {"pow", OperatorForm::elementwise},
    {"prod", OperatorForm::reduction},
    {"rand", OperatorForm::fill},
    {"randint", OperatorForm::fill},
    {"randn", OperatorForm::fill},
    {"random", OperatorForm::fill},
    {"randperm", OperatorForm::fill},
    {"reciprocal", OperatorForm::elementwise},
    {"relu", OperatorForm::elementwise},
    {"relu6", OperatorForm::elementwise},
    {"remainder", OperatorForm::elementwise},
    {"renorm", OperatorForm::reduction},
    {"repeat", OperatorForm::copy},
    {"roll", OperatorForm::indexing},
    {"round", OperatorForm::elementwise},
    {"rsqrt", OperatorForm::elementwise},
    {"rsub", OperatorForm::elementwise},
    {"scatter", OperatorForm::indexing},
    {"scatter_add", OperatorForm::indexing},
    {"sigmoid", OperatorForm::elementwise},
    {"sigmoid_backward", OperatorForm::elementwise},
    {"sign", OperatorForm::elementwise},
    {"silu", OperatorForm::elementwise},
    {"silu_backward", OperatorForm::elementwise},
    {"sin", OperatorForm::elementwise},
    {"smooth_l1_loss", OperatorForm::loss},
    {"softplus", OperatorForm::elementwise},
    {"softplus_backward", OperatorForm::elementwise},
    {"softshrink", OperatorForm::elementwise},
    {"sort", OperatorForm::indexing},
    {"sqrt", OperatorForm::elementwise},
    {"square", OperatorForm::elementwise},
    {"stack", OperatorForm::copy},
    {"std", OperatorForm::reduction},
    {"std_mean", OperatorForm::reduction},
    {"sub", OperatorForm::elementwise},
    {"sum", OperatorForm::reduction},
    {"take", OperatorForm::indexing},
    {"take_along_dim", OperatorForm::indexing},
    {"tanh", OperatorForm::elementwise},
    {"tanh_backward", OperatorForm::elementwise},
    {"threshold", OperatorForm::elementwise},
    {"threshold_backward", OperatorForm::elementwise},
    {"topk", OperatorForm::indexing},
    {"tril", OperatorForm::elementwise},
    {"triu", OperatorForm::elementwise},
    {"trunc", OperatorForm::elementwise},
    {"uniform", OperatorForm::fill},
    {"unique", OperatorForm::indexing},
    {"var", OperatorForm::reduction},
    {"var_mean", OperatorForm::reduction},
    {"where", OperatorForm::elementwise},
    {"zero", OperatorForm::fill},
    {"zeros", OperatorForm::fill},
    {"zeros_like", OperatorForm::fill},
});
// clang-format on
static_assert(has_sorted_names(kOperators));

constexpr std::string_view kListPrefixes[] = {"_amp_foreach", "_foreach_", "_fused_adagrad", "_fused_adam", "_fused_sgd"};

// Families of operators, by a part of their names; the first row that matches is used.
constexpr OperatorRow kFamilies[] = {
    {"attention", OperatorForm::attention},      {"batch_norm", OperatorForm::batch_norm}, {"group_norm", OperatorForm::group_norm},
    {"instance_norm", OperatorForm::group_norm}, {"softmax", OperatorForm::softmax},       {"rms_norm", OperatorForm::rms_norm},
    {"layer_norm", OperatorForm::layer_norm},    {"convert", OperatorForm::unknown},       {"conv", OperatorForm::convolution},
    {"grid_sampler", OperatorForm::pooling},     {"pool", OperatorForm::pooling},          {"upsample", OperatorForm::pooling}};

OperatorForm form_of(std::string_view stem) {
  if (const OperatorRow* row = find_row(kOperators, stem)) return row->form;
  for (const OperatorRow& family : kFamilies)
    if (stem.find(family.name) != std::string_view::npos) return family.form;
  return OperatorForm::unknown;
}

}  // namespace

OperatorName::OperatorName(std::string_view whole) {
  const size_t colons = whole.rfind("::");
  stem = colons == std::string_view::npos ? whole : whole.substr(colons + 2);
  bool has_lists = false;
  for (const std::string_view prefix : kListPrefixes) has_lists = has_lists || stem.starts_with(prefix);
  if (stem.ends_with('_') && !stem.ends_with("__")) {
    in_place = true;
    stem.remove_suffix(1);
  }
  backward = stem.find("backward") != std::string_view::npos;
  form = has_lists ? OperatorForm::lists : form_of(stem);
}

}  // namespace gpucast

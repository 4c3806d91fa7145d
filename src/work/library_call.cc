#include "src/work/library_call.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/bounded.h"

namespace gpucast {
namespace {

// cublasComputeType_t: the precision in which fp32 numbers are multiplied.
constexpr int64_t kFast16F = 74, kFast16BF = 75, kFastTf32 = 77;

Precision product_precision(const std::string& type, int64_t compute_type, bool tf32) {
  const Precision own = type_precision(type);
  if (own != Precision::fp32) return own;
  if (compute_type == kFastTf32) return Precision::tf32;
  if (compute_type == kFast16F) return Precision::fp16;
  if (compute_type == kFast16BF) return Precision::bf16;
  return tf32 ? Precision::tf32 : Precision::fp32;
}

// Libraries count columns first: their m is our n.
Operation gemm(const CallArguments& call, const CallSettings& settings) {
  Operation out;
  out.kind = OperationKind::gemm;
  out.precision = product_precision(call.type, call.compute_type, settings.tf32_products);
  out.element_bytes = std::max(1, type_bytes(call.type));
  GemmShape& shape = out.gemm;
  shape.batch = call.batch.value_or(1);
  shape.m = call.n.value_or(0);
  shape.n = call.m.value_or(0);
  shape.k = call.k.value_or(0);
  shape.a_transposed = call.b_transposed;
  shape.b_transposed = call.a_transposed;
  out.bytes_read = bounded_product({shape.batch, shape.m + shape.n, shape.k, out.element_bytes});
  out.bytes_written =
      bounded_product({shape.batch, shape.m, shape.n, call.type_c.empty() ? out.element_bytes : std::max(1, type_bytes(call.type_c))});
  out.flops =
      2.0 * static_cast<double>(shape.batch) * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return out;
}

// Matrix times vector.
Operation gemv(const CallArguments& call, const CallSettings& settings) {
  Operation out = gemm(call, settings);
  out.gemm = {1, call.m.value_or(0), 1, call.n.value_or(0), false, false};
  out.bytes_read = bounded_product({out.gemm.m + 1, out.gemm.k, out.element_bytes});
  out.bytes_written = bounded_product({out.gemm.m, out.element_bytes});
  out.flops = 2.0 * static_cast<double>(out.gemm.m) * static_cast<double>(out.gemm.k);
  return out;
}

// One operation of a graph that cuDNN executes.
Operation convolution(const GraphOperation& call, const CallSettings& settings) {
  Operation out;
  out.kind = OperationKind::convolution;
  out.precision = type_precision(call.type);
  if (out.precision == Precision::fp32 && settings.tf32_convolutions) out.precision = Precision::tf32;
  out.element_bytes = std::max(1, type_bytes(call.type));
  const std::vector<int64_t>&x = call.x, &w = call.w, &y = call.y;
  ConvolutionShape& shape = out.convolution;
  if (x.size() >= 3 && w.size() == x.size() && y.size() == x.size()) shape = convolution_shape(x, call.x_strides, w, y, call.stride);
  shape.pass = call.op == "convolution_backward_data"     ? Pass::data_gradient
               : call.op == "convolution_backward_filter" ? Pass::weight_gradient
                                                          : Pass::forward;
  if (shape.batch == 0) return out;
  const int64_t bytes[] = {bounded_product({bounded_product(x), out.element_bytes}),
                           bounded_product({bounded_product(w), out.element_bytes}),
                           bounded_product({bounded_product(y), out.element_bytes})};
  const int64_t written = bytes[shape.pass == Pass::data_gradient ? 0 : shape.pass == Pass::weight_gradient ? 1 : 2];
  out.bytes_read = bytes[0] + bytes[1] + bytes[2] - written;
  out.bytes_written = written;
  out.flops = 2.0 * static_cast<double>(bounded_product(y)) * static_cast<double>(bounded_product(w)) /
              static_cast<double>(std::max<int64_t>(1, w[0]));
  return out;
}

bool has_shape(const GraphTensor& tensor, size_t dimensions) { return tensor.shape.size() == dimensions; }

// From queries [batch, heads, length, size].
Operation attention(const GraphTensor& q, int64_t kv_heads, int64_t keys, int64_t value_dim, Pass pass, bool causal) {
  Operation out;
  out.precision = type_precision(q.type);
  out.element_bytes = std::max(1, type_bytes(q.type));
  set_attention({.pass = pass,
                 .batch = q.shape[0],
                 .heads = q.shape[1],
                 .kv_heads = kv_heads,
                 .queries = q.shape[2],
                 .keys = keys,
                 .head_dim = q.shape[3],
                 .value_dim = value_dim,
                 .causal = causal,
                 .kernel = AttentionKernel::cudnn},
                &out);
  return out;
}

// What a graph multiplies: cuDNN's own node for attention, or products. Attention begins with queries times transposed keys. The first
// later product whose left side has the scores' shape is scores times values. A graph with more products is the backward.
std::optional<Operation> products(const CallArguments& call) {
  std::vector<const GraphOperation*> products;
  bool causal = false;  // also a graph that computes the mask from indices: PyTorch has no other mask that is made there
  for (const GraphOperation& part : call.operations) {
    causal = causal || part.op == "diagonal_band_mask" || part.op == "gen_index";
    if (part.op == "matmul" && part.tensors.size() >= 3) products.push_back(&part);
  }
  for (const GraphOperation& part : call.operations) {
    if (!part.op.starts_with("sdpa_") || part.tensors.size() < 3) continue;
    const GraphTensor &q = part.tensors[0], &k = part.tensors[1], &v = part.tensors[2];
    if (!has_shape(q, 4) || !has_shape(k, 4) || !has_shape(v, 4)) return std::nullopt;
    return attention(q, k.shape[1], k.shape[2], v.shape[3], part.op == "sdpa_backward" ? Pass::backward : Pass::forward, causal);
  }
  if (products.empty()) return std::nullopt;
  const GraphTensor &a = products[0]->tensors[0], &b = products[0]->tensors[1];
  const auto is_of_values = [&](const GraphOperation* product) {
    return product->tensors[0].is_virtual && has_shape(product->tensors[1], 4) &&
           product->tensors[0].shape == products[0]->tensors[2].shape;
  };
  const auto values = std::find_if(products.begin(), products.end(), is_of_values);
  if (values != products.end() && has_shape(a, 4) && has_shape(b, 4)) {
    return attention(a, b.shape[1], b.shape[3], (*values)->tensors[1].shape[3], products.size() > 2 ? Pass::backward : Pass::forward,
                     causal);
  }
  if (a.shape.size() < 2 || b.shape.size() != a.shape.size()) return std::nullopt;
  CallArguments product;
  product.type = a.type;
  const size_t rows = a.shape.size() - 2;
  product.batch = bounded_product(std::span(a.shape).first(rows));
  product.n = a.shape[rows];  // a library's n is our m
  product.m = b.shape[rows + 1];
  product.k = a.shape[rows + 1];
  product.type_c = products[0]->tensors[2].type;
  return gemm(product, {});
}

std::optional<Operation> graph(const CallArguments& call, const CallSettings& settings) {
  std::optional<Operation> main = products(call);
  int64_t bytes = 0;
  int element_bytes = 4;
  for (const GraphOperation& part : call.operations) {
    if (part.op.starts_with("convolution")) {
      main = convolution(part, settings);
      continue;
    }
    for (const GraphTensor& tensor : part.tensors) {
      if (tensor.is_virtual) continue;
      element_bytes = std::max(1, type_bytes(tensor.type));
      bytes = std::min(kMostElements, bytes + bounded_product({bounded_product(tensor.shape), element_bytes}));
    }
  }
  if (main || bytes == 0) return main;
  Operation out;  // pointwise and similar, fused: each tensor is moved once
  out.kind = OperationKind::elementwise;
  out.element_bytes = element_bytes;
  out.bytes_read = bytes / 2;
  out.bytes_written = bytes - out.bytes_read;
  return out;
}

// Batch norm: mode 0 is per activation, others per channel.
// With statistics from training it is elementwise.
Operation batch_norm(const CallArguments& call, bool backward, bool inference) {
  Operation out;
  out.kind = inference ? OperationKind::elementwise : OperationKind::normalization;
  out.per_channel = !inference;
  out.element_bytes = std::max(1, type_bytes(call.type));
  const std::vector<int64_t>&shape = call.shape, &strides = call.strides;
  const int64_t count = bounded_product(shape), bytes = bounded_product({count, out.element_bytes});
  if (!inference) {
    out.rows = shape.size() > 1 ? shape[1] : 1;
    out.columns = out.rows > 0 ? count / out.rows : count;
  }
  out.strided = !(strides.size() > 1 && strides[1] == 1);  // not channels-last
  out.bytes_read = backward ? 2 * bytes : bytes;
  out.bytes_written = bytes;
  out.pass = backward ? Pass::backward : Pass::forward;
  out.flops = static_cast<double>(count) * (backward ? 8 : 5);
  return out;
}

Operation recurrent(const CallArguments& call, std::string_view name, const CallSettings& settings) {
  Operation out;
  out.kind = OperationKind::recurrent;
  out.precision = type_precision(call.type);
  if (out.precision == Precision::fp32 && settings.tf32_convolutions) out.precision = Precision::tf32;
  out.element_bytes = std::max(1, type_bytes(call.type));
  const int64_t gates = call.cell == "lstm"  ? 4
                        : call.cell == "gru" ? 3
                                             : 1,
                layers = call.layers, directions = call.directions, hidden = call.hidden_size, input = call.input_size, steps = call.steps,
                batch = call.batch.value_or(0);
  double weights = 0;  // of all layers
  const auto of_layer = [&](int64_t from) {
    return static_cast<double>(gates * directions) * static_cast<double>(hidden) * static_cast<double>(from + hidden);
  };
  if (layers > 0) weights = of_layer(input) + static_cast<double>(layers - 1) * of_layer(bounded_product({hidden, directions}));
  out.flops = 2 * weights * static_cast<double>(bounded_product({steps, batch}));
  out.pass = name.find("Backward") == std::string_view::npos ? Pass::forward
             : name.find("Weight") == std::string_view::npos ? Pass::data_gradient
                                                             : Pass::weight_gradient;
  out.rows = bounded_product({steps, layers});
  out.layers = layers;
  out.columns = hidden;
  out.gemm = {directions, batch, bounded_product({gates, hidden}), hidden, false, true};
  const int64_t outputs = bounded_product({hidden, layers, directions});
  out.bytes_read = bounded_product({static_cast<int64_t>(std::min(weights, static_cast<double>(kMostElements))), out.element_bytes}) +
                   bounded_product({steps, batch, input + outputs, out.element_bytes});
  out.bytes_written = bounded_product({steps, batch, outputs, out.element_bytes});
  return out;
}

// cuFFT: a kernel for each dimension, which holds a line of the signal (src/vgpu/libs/cufft.cc). A longer line needs several.
int64_t kernels_of_line(int64_t size) {
  constexpr int64_t kOneKernel = 4096;
  int64_t out = 1;
  for (int64_t held = kOneKernel; held < size; held = bounded_product({held, kOneKernel})) ++out;
  return out;
}

// A line with a prime factor above this is computed as a convolution (Bluestein's algorithm), of complex numbers.
bool has_large_factor(int64_t size) {
  constexpr int64_t kLargest = 127;
  for (int64_t factor = 2; factor <= kLargest; ++factor)
    while (size > 1 && size % factor == 0) size /= factor;
  return size > 1;
}

std::optional<Operation> transform(const CallArguments& call) {
  Operation out;
  out.kind = OperationKind::elementwise;
  out.precision = type_precision(call.type);
  out.element_bytes = std::max(1, type_bytes(call.type));
  if (call.shape.empty() || call.shape.back() < 1) return std::nullopt;
  const int64_t last = call.shape.back(), batch = call.batch.value_or(1);
  const int64_t from_bytes = std::max(1, type_bytes(call.type)), to_bytes = std::max(1, type_bytes(call.type_out)),
                complex_bytes = std::max(from_bytes, to_bytes);
  const bool real = from_bytes != to_bytes;
  const int64_t lines = bounded_product({batch, bounded_product(std::span(call.shape).first(call.shape.size() - 1))});
  const int64_t real_bytes = bounded_product({lines, last, std::min(from_bytes, to_bytes)});
  const int64_t whole = bounded_product({lines, last, complex_bytes}), half = bounded_product({lines, last / 2 + 1, complex_bytes});
  const int64_t kept = real ? half : whole;  // of a real signal's spectrum
  int64_t moved = real ? real_bytes + half : 2 * whole;
  out.launches = 0;
  for (size_t i = 0; i < call.shape.size(); ++i) {
    const int64_t kernels = kernels_of_line(call.shape[i]);
    out.launches += kernels;
    moved += 2 * kept * (kernels - (i + 1 == call.shape.size() ? 1 : 0));
  }
  if (real && has_large_factor(last)) {  // to complex numbers and back
    out.launches += 2;
    moved += 4 * whole;
  }
  out.bytes_read = std::min(moved, kMostElements) / 2;
  out.bytes_written = std::min(moved, kMostElements) - out.bytes_read;
  return out;
}

Operation collective(const CallArguments& call, std::string_view name) {
  constexpr std::pair<std::string_view, CollectiveKind> kKinds[] = {
      {"ncclAllGather", CollectiveKind::all_gather}, {"ncclReduceScatter", CollectiveKind::reduce_scatter},
      {"ncclBroadcast", CollectiveKind::broadcast},  {"ncclReduce", CollectiveKind::reduce},
      {"ncclAlltoAll", CollectiveKind::all_to_all},  {"ncclGather", CollectiveKind::gather},
      {"ncclScatter", CollectiveKind::scatter},      {"ncclSend", CollectiveKind::messages},
      {"ncclRecv", CollectiveKind::messages},        {"ncclPutSignal", CollectiveKind::messages}};
  Operation out;
  out.kind = OperationKind::collective;
  out.element_bytes = std::max(1, type_bytes(call.type));
  CollectiveShape& shape = out.collective;
  for (const auto& [of, kind] : kKinds)
    if (of == name) shape.kind = kind;
  shape.ranks = std::max<int64_t>(1, call.world);
  const int64_t bytes = bounded_product({call.count, out.element_bytes});
  const int64_t all_bytes = bounded_product({bytes, shape.ranks});
  const auto is = [&](std::initializer_list<CollectiveKind> kinds) { return std::ranges::find(kinds, shape.kind) != kinds.end(); };
  const bool gathers = is({CollectiveKind::all_gather, CollectiveKind::gather, CollectiveKind::all_to_all});
  const bool scatters = is({CollectiveKind::reduce_scatter, CollectiveKind::scatter, CollectiveKind::all_to_all});
  shape.bytes = gathers || scatters ? all_bytes : bytes;
  out.bytes_read = name == "ncclRecv" ? 0 : scatters ? all_bytes : bytes;
  out.bytes_written = name == "ncclSend" || name == "ncclPutSignal" ? 0 : gathers ? all_bytes : bytes;
  return out;
}

// Calls that work on `n` numbers: dot, norm, scal, axpy.
Operation vector_operation(const CallArguments& call) {
  Operation out;
  out.kind = OperationKind::reduction;
  out.element_bytes = std::max(1, type_bytes(call.type));
  out.columns = call.n.value_or(0);
  out.rows = 1;
  out.bytes_read = bounded_product({out.columns, out.element_bytes});
  out.bytes_written = out.element_bytes;
  return out;
}

}  // namespace

ConvolutionShape convolution_shape(std::span<const int64_t> x, std::span<const int64_t> x_strides, std::span<const int64_t> w,
                                   std::span<const int64_t> out, std::span<const int64_t> stride) {
  ConvolutionShape shape;
  shape.batch = x[0];
  shape.in_channels = x[1];
  shape.out_channels = w[0];
  shape.groups = w[1] > 0 ? std::max<int64_t>(1, x[1] / w[1]) : 1;
  for (size_t i = 2; i < x.size() && i < 5; ++i) {
    shape.in[i - 2] = x[i];
    shape.out[i - 2] = out[i];
    shape.window[i - 2] = w[i];
    if (i - 2 < stride.size()) shape.stride[i - 2] = std::max<int64_t>(1, stride[i - 2]);
  }
  shape.channels_last = x_strides.size() == x.size() && x_strides[1] == 1 && x[1] > 1;
  return shape;
}

void set_attention(const AttentionShape& shape, Operation* out) {
  out->kind = OperationKind::attention;
  out->attention = shape;
  out->pass = shape.pass;
  const bool backward = shape.pass == Pass::backward;
  const double pairs = static_cast<double>(shape.batch) * static_cast<double>(shape.heads) * static_cast<double>(shape.queries) *
                       static_cast<double>(shape.keys);
  out->flops = 2 * pairs * static_cast<double>(shape.head_dim + shape.value_dim) * (shape.causal ? 0.5 : 1) * (backward ? 2.5 : 1);
  const int64_t q = bounded_product({shape.batch, shape.heads, shape.queries, shape.head_dim, out->element_bytes}),
                kv = bounded_product({shape.batch, shape.kv_heads, shape.keys, shape.head_dim + shape.value_dim, out->element_bytes}),
                result = bounded_product({shape.batch, shape.heads, shape.queries, shape.value_dim, out->element_bytes});
  out->bytes_read = q + kv + (backward ? 2 * result : 0);
  out->bytes_written = backward ? q + kv : result;
}

int type_bytes(std::string_view name) {
  static constexpr std::pair<std::string_view, int> kBytes[] = {
      {"float32", 4},       {"float16", 2},         {"bfloat16", 2},        {"int64", 8},        {"bool", 1},
      {"uint8", 1},         {"int32", 4},           {"float64", 8},         {"int8", 1},         {"int16", 2},
      {"complex64", 8},     {"complex128", 16},     {"complex32", 4},       {"float8_e4m3", 1},  {"float8_e5m2", 1},
      {"float8_e4m3fn", 1}, {"float8_e4m3fnuz", 1}, {"float8_e5m2fnuz", 1}, {"float8_ue8m0", 1}, {"float8_e8m0fnu", 1},
      {"uint16", 2},        {"uint32", 4},          {"uint64", 8}};
  for (const auto& [known, bytes] : kBytes)
    if (known == name) return bytes;
  return 0;
}

Precision type_precision(std::string_view name) {
  if (name == "float16") return Precision::fp16;
  if (name == "bfloat16") return Precision::bf16;
  if (name == "float64") return Precision::fp64;
  // The device table has no rate for numbers of 4 bits; cards that multiply them are at least as fast as with 8.
  if (name.starts_with("float8") || name.starts_with("float4")) return Precision::fp8;
  if (name == "int8" || name == "uint8") return Precision::int8;
  return Precision::fp32;
}

std::optional<Operation> library_call(std::string_view library, std::string_view name, const CallArguments& arguments,
                                      const CallSettings& settings) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (library == "cublas" || library == "cublasLt" || library == "cusparseLt") {
    if (arguments.k) return gemm(arguments, settings);
    if (has("gemv")) return gemv(arguments, settings);
    if (arguments.n) return vector_operation(arguments);
    return std::nullopt;
  }
  if (library == "cudnn") {
    if (has("BackendExecute")) return graph(arguments, settings);
    if (has("BatchNorm")) return batch_norm(arguments, has("Backward"), has("Inference"));
    if (has("RNN")) return recurrent(arguments, name, settings);
    if (has("onvolution") && !arguments.convolution.x.empty()) {
      Operation out = convolution(arguments.convolution, settings);
      if (has("BackwardData")) out.convolution.pass = Pass::data_gradient;
      if (has("BackwardFilter")) out.convolution.pass = Pass::weight_gradient;
      return out;
    }
    return std::nullopt;
  }
  if (library == "cufft") return transform(arguments);
  if (library == "nccl") return collective(arguments, name);
  return std::nullopt;
}

}  // namespace gpucast

#include "src/work/operator_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/bounded.h"
#include "src/base/embedding_gradient.h"
#include "src/work/library_call.h"
#include "src/work/operator_forms.h"

namespace gpucast {
namespace {

struct Tensor : TensorArgument {
  explicit Tensor(const TensorArgument& argument) : TensorArgument(argument), element_bytes(std::max(1, type_bytes(argument.dtype))) {}
  int element_bytes;

  int64_t count() const { return std::min(bounded_product(sizes), kMostTensorBytes); }
  // The bytes of its distinct elements.
  int64_t bytes() const {
    int64_t out = element_bytes;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (i >= strides.size() || strides[i] != 0) out = bounded_product({out, sizes[i]});
    return std::min(out, kMostTensorBytes);
  }
  // The bytes of the sectors that its elements are in.
  int64_t touched_bytes() const {
    constexpr int64_t kSectorBytes = 32;
    int64_t step = 0;
    for (size_t i = 0; i < sizes.size() && i < strides.size(); ++i)
      if (sizes[i] > 1 && strides[i] > 0) step = step == 0 ? strides[i] : std::min(step, strides[i]);
    return std::min(bounded_product({bytes(), std::clamp<int64_t>(step, 1, std::max<int64_t>(1, kSectorBytes / element_bytes))}),
                    kMostTensorBytes);
  }
  // The dimension whose elements are adjacent in memory.
  size_t innermost() const {
    for (size_t i = sizes.size(); i-- > 0;)
      if (i < strides.size() && strides[i] == 1 && sizes[i] > 1) return i;
    return sizes.empty() ? 0 : sizes.size() - 1;
  }
};

// An operator's arguments.
struct Inputs {
  const std::vector<OperatorArgument>& arguments;
  std::vector<Tensor> tensors;             // all tensors, also those in lists
  std::vector<std::vector<Tensor>> lists;  // lists of tensors
};

Inputs inputs_of(const std::vector<OperatorArgument>& arguments) {
  Inputs out{arguments, {}, {}};
  for (const OperatorArgument& argument : arguments) {
    for (const TensorArgument& tensor : argument.tensors) out.tensors.emplace_back(tensor);
    if (argument.kind == ArgumentKind::tensors) out.lists.emplace_back(argument.tensors.begin(), argument.tensors.end());
  }
  return out;
}

std::vector<int64_t> integers(const Inputs& in, size_t index) {
  return index < in.arguments.size() ? in.arguments[index].integers : std::vector<int64_t>();
}

// The argument's value, if it is one whole number.
std::optional<int64_t> integer(const Inputs& in, size_t index) {
  if (index >= in.arguments.size() || in.arguments[index].kind != ArgumentKind::integer) return std::nullopt;
  return in.arguments[index].integer;
}

// The first argument of this kind; nullptr: there is none.
const OperatorArgument* first_of(const Inputs& in, ArgumentKind kind) {
  const auto found = std::ranges::find(in.arguments, kind, &OperatorArgument::kind);
  return found == in.arguments.end() ? nullptr : &*found;
}
int64_t last_integer(const Inputs& in, int64_t otherwise) {
  for (const OperatorArgument& argument : in.arguments)
    if (argument.kind == ArgumentKind::integer) otherwise = argument.integer;
  return otherwise;
}

int64_t read_bytes(const std::vector<Tensor>& tensors) {
  int64_t out = 0;
  for (const Tensor& tensor : tensors)
    if (tensor.on_card && !tensor.again) out += tensor.bytes();
  return out;
}

// The number of elements of the shape that the tensors are broadcast to.
int64_t broadcast_count(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const Tensor& tensor : tensors) {
    if (tensor.sizes.size() > sizes.size()) sizes.insert(sizes.begin(), tensor.sizes.size() - sizes.size(), 1);
    for (size_t i = 0; i < tensor.sizes.size(); ++i) {
      int64_t& size = sizes[sizes.size() - 1 - i];
      const int64_t own = tensor.sizes[tensor.sizes.size() - 1 - i];
      size = own == 0 ? 0 : std::max(size, own);
    }
  }
  return std::min(bounded_product(sizes), kMostTensorBytes);
}

int widest(const std::vector<Tensor>& tensors) {
  int out = 0;
  for (const Tensor& tensor : tensors)
    if (!tensor.sizes.empty()) out = std::max(out, tensor.element_bytes);
  for (const Tensor& tensor : tensors)
    if (out == 0) out = tensor.element_bytes;
  return out == 0 ? 4 : out;
}

Operation base(OperationKind kind, const Inputs& in) {
  Operation out;
  out.kind = kind;
  out.bytes_read = read_bytes(in.tensors);
  if (!in.tensors.empty()) {
    const auto largest =
        std::max_element(in.tensors.begin(), in.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.bytes() < b.bytes(); });
    out.element_bytes = largest->element_bytes;
    out.precision = type_precision(largest->dtype);
  }
  return out;
}

// True: `sizes` are the last dimensions of `whole`, but not all of them.
bool is_tail(const std::vector<int64_t>& sizes, const std::vector<int64_t>& whole) {
  return !sizes.empty() && sizes.size() < whole.size() && std::equal(sizes.rbegin(), sizes.rend(), whole.rbegin());
}

Operation normalization(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::normalization, in);
  if (in.tensors.empty()) return out;
  const Tensor& x = in.tensors[0];
  const int64_t count = x.count();
  if (name.form == OperatorForm::batch_norm) {
    // The first boolean says whether statistics are computed from this batch. If not, they are known, and the work is elementwise.
    const OperatorArgument* of_batch = first_of(in, ArgumentKind::boolean);
    if (of_batch && !of_batch->boolean) {
      out.kind = OperationKind::elementwise;
    } else {
      out.rows = x.sizes.size() > 1 ? x.sizes[1] : 1;
      out.per_channel = true;
    }
    out.strided = x.innermost() != 1;
  } else if (name.form == OperatorForm::group_norm) {
    // native_group_norm(x, weight, bias, N, C, HxW, groups): a row is one group of one sample.
    const int64_t groups = last_integer(in, 1);
    out.rows = bounded_product({x.sizes.empty() ? 1 : x.sizes[0], std::max<int64_t>(1, groups)});
  } else if (name.form == OperatorForm::softmax) {
    const OperatorArgument* named = first_of(in, ArgumentKind::integer);
    int64_t dim = named ? named->integer : -1;
    const auto size = static_cast<int64_t>(x.sizes.size());
    if (dim < 0) dim += size;
    const int64_t length = dim >= 0 && dim < size ? x.sizes[static_cast<size_t>(dim)] : count;
    out.rows = length > 0 ? count / length : 0;
    out.strided = dim != size - 1;
    constexpr int64_t kKeptBytes = 48 << 10;  // shared memory of a block
    out.rereads = bounded_product({length, x.element_bytes}) > kKeptBytes;
  } else {  // layer and RMS norm: over the given dimensions; older releases do not record them, but weights have their shape
    int64_t length = bounded_product(integers(in, name.backward ? 2 : 1));
    for (size_t i = 1; i < in.tensors.size() && length == 1; ++i)
      if (is_tail(in.tensors[i].sizes, x.sizes)) length = in.tensors[i].count();
    if (length == 1 && !x.sizes.empty()) length = x.sizes.back();
    out.rows = length > 0 ? count / length : 0;
    for (size_t i = 1; i < in.tensors.size() && name.backward; ++i)
      out.sums_weights = out.sums_weights || (in.tensors[i].count() == length && is_tail(in.tensors[i].sizes, x.sizes));
  }
  out.columns = out.rows > 0 ? count / out.rows : count;
  out.pass = name.backward ? Pass::backward : Pass::forward;
  out.bytes_written = count * x.element_bytes;
  // Layer and group norm write mean and deviation of each row, in fp32.
  const bool statistics = !name.backward && (name.form == OperatorForm::layer_norm || name.form == OperatorForm::group_norm);
  if (statistics) out.bytes_written += 8 * out.rows;
  out.flops = static_cast<double>(count) * (name.backward ? 8 : 5);
  return out;
}

Operation attention(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::attention, in);
  // Forward: q, k, v; backward: grad, q, k, v.
  const size_t first = name.backward ? 1 : 0;
  if (in.tensors.size() < first + 3 || in.tensors[first].sizes.size() != 4) return out;
  const Tensor &q = in.tensors[first], &k = in.tensors[first + 1], &v = in.tensors[first + 2];
  // The kernels' own operators have [batch, length, heads, size]; cuDNN's and scaled_dot_product's [batch, heads, length, size].
  const auto named = [&](std::string_view word) { return name.stem.find(word) != std::string_view::npos; };
  const bool heads_first = named("scaled_dot_product") || named("cudnn");
  const size_t head = heads_first ? 1 : 2, length = heads_first ? 2 : 1;
  AttentionShape shape;
  shape.pass = name.backward ? Pass::backward : Pass::forward;
  shape.batch = q.sizes[0];
  shape.heads = q.sizes[head];
  shape.kv_heads = k.sizes[head];
  shape.queries = q.sizes[length];
  shape.keys = k.sizes[length];
  shape.head_dim = q.sizes[3];
  shape.value_dim = v.sizes[3];
  shape.kernel = named("flash")       ? AttentionKernel::flash
                 : named("efficient") ? AttentionKernel::efficient
                 : named("cudnn")     ? AttentionKernel::cudnn
                                      : AttentionKernel::any;
  // Causal: the first boolean is is_causal; the memory-efficient operator has a custom_mask_type of 1 or 2 instead.
  if (named("efficient") && !heads_first) {
    const int64_t last = last_integer(in, 0);
    shape.causal = last == 1 || last == 2;
  } else if (const OperatorArgument* is_causal = first_of(in, ArgumentKind::boolean)) {
    shape.causal = is_causal->boolean;
  }
  out.precision = type_precision(q.dtype);
  set_attention(shape, &out);
  return out;
}

// Convolutions that PyTorch computes itself, mostly depthwise ones. forward(x, w, ...); backward(grad, x, w, ...).
Operation convolution(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::convolution, in);
  const size_t first = name.backward ? 1 : 0;
  if (in.tensors.size() < first + 2) return out;
  const Tensor &x = in.tensors[first], &w = in.tensors[first + 1];
  if (x.sizes.size() < 3 || w.sizes.size() != x.sizes.size()) return out;
  std::vector<int64_t> stride;
  // The stride is the first list that has a number for each spatial dimension and is not the window.
  for (const OperatorArgument& argument : in.arguments) {
    std::vector<int64_t> list = argument.integers;
    if (!stride.empty() || list.size() != x.sizes.size() - 2) continue;
    for (int64_t& step : list) step = std::max<int64_t>(1, step);
    if (!std::equal(list.begin(), list.end(), w.sizes.begin() + 2, w.sizes.end())) stride = std::move(list);
  }
  std::vector<int64_t> y = {x.sizes[0], w.sizes[0]};
  for (size_t i = 2; i < x.sizes.size(); ++i) {
    const int64_t step = i - 2 < stride.size() ? stride[i - 2] : 1;
    y.push_back(name.backward && in.tensors[0].sizes.size() == x.sizes.size() ? in.tensors[0].sizes[i] : (x.sizes[i] + step - 1) / step);
  }
  out.convolution = convolution_shape(x.sizes, x.strides, w.sizes, y, stride);
  out.convolution.by_library = false;
  out.convolution.pass = out.pass = name.backward ? Pass::backward : Pass::forward;
  const int64_t outputs = bounded_product(y);
  const double products =
      2.0 * static_cast<double>(outputs) * static_cast<double>(w.count()) / static_cast<double>(std::max<int64_t>(1, w.sizes[0]));
  out.flops = name.backward ? 2 * products : products;
  out.bytes_read = x.bytes() + w.bytes() + (name.backward ? bounded_product({outputs, x.element_bytes}) : 0);
  out.bytes_written = name.backward ? x.bytes() + w.bytes() : bounded_product({outputs, x.element_bytes});
  return out;
}

Operation reduction(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::reduction, in);
  if (in.tensors.empty()) return out;
  const Tensor& x = in.tensors[0];
  int64_t kept = 1;
  const auto rank = static_cast<int64_t>(x.sizes.size());
  std::vector<int64_t> dims;
  for (size_t i = 1; i < in.arguments.size() && dims.empty(); ++i) dims = integers(in, i);
  if (const auto dim = integer(in, 1); dim && dims.empty() && name.form == OperatorForm::reduction_of_one) dims = {*dim};
  if (!dims.empty() && name.form != OperatorForm::loss) {
    for (int64_t i = 0; i < rank; ++i) {
      const bool gone = std::any_of(dims.begin(), dims.end(), [&](int64_t dim) { return dim == i || dim + rank == i; });
      if (!gone) kept = bounded_product({kept, x.sizes[static_cast<size_t>(i)]});
    }
    const int64_t last = static_cast<int64_t>(x.innermost());
    out.strided = std::none_of(dims.begin(), dims.end(), [&](int64_t dim) { return dim == last || dim + rank == last; });
  }
  out.rows = kept;
  out.columns = kept > 0 ? x.count() / kept : 0;
  out.bytes_written = bounded_product({kept, x.element_bytes});
  out.flops = static_cast<double>(x.count());
  return out;
}

// Rows are along the dimension `given`, which may count from the last.
void set_rows_along(const Tensor& x, int64_t given, Operation* out) {
  const auto rank = static_cast<int64_t>(x.sizes.size());
  const int64_t dimension = given < 0 ? given + rank : given;
  out->columns = dimension >= 0 && dimension < rank ? std::max<int64_t>(1, x.sizes[static_cast<size_t>(dimension)]) : 1;
  out->rows = x.count() / out->columns;
}

// (x, dimension, ...).
Operation scan(const Inputs& in) {
  Operation out = base(OperationKind::indexing, in);
  if (in.tensors.empty()) return out;
  set_rows_along(in.tensors[0], integer(in, 1).value_or(-1), &out);
  out.bytes_written = in.tensors[0].bytes();
  return out;
}

// (x, count, dimension, ...).
Operation select(const Inputs& in) {
  Operation out = base(OperationKind::indexing, in);
  if (in.tensors.empty()) return out;
  set_rows_along(in.tensors[0], integer(in, 2).value_or(-1), &out);
  out.bytes_written = bounded_product({out.rows, integer(in, 1).value_or(1), out.element_bytes + 8});
  return out;
}

// (sorted rows, numbers, ...).
Operation search(const Inputs& in) {
  Operation out = base(OperationKind::indexing, in);
  if (in.tensors.empty()) return out;
  set_rows_along(in.tensors[0], -1, &out);
  out.bytes_written = bounded_product({in.tensors.size() > 1 ? in.tensors[1].count() : 1, 8});
  return out;
}

// (x, dimension, ...) or (x, stable, dimension, ...): values, and their places as 8 bytes.
Operation sort(const Inputs& in) {
  Operation out = base(OperationKind::indexing, in);
  if (in.tensors.empty()) return out;
  const Tensor& x = in.tensors[0];
  set_rows_along(x, integer(in, in.arguments.size() > 3 ? 2 : 1).value_or(-1), &out);
  out.sort_bits = int64_t{8} * x.element_bytes;
  out.bytes_read = out.bytes_written = bounded_product({x.count(), x.element_bytes + 8});
  return out;
}

// The dimensions in which two shapes agree, from the last one on; at least one of x's is not among them.
size_t same_at_the_end(const Tensor& x, const Tensor& values) {
  size_t same = 0;
  while (same + 1 < x.sizes.size() && same < values.sizes.size() &&
         x.sizes[x.sizes.size() - 1 - same] == values.sizes[values.sizes.size() - 1 - same])
    ++same;
  return same;
}

// Of the dimensions from `first` on, before `end`.
int64_t elements_of(const Tensor& x, size_t first, size_t end) {
  int64_t out = 1;
  for (size_t i = first; i < end; ++i) out = bounded_product({out, x.sizes[i]});
  return out;
}

Operation indexing(const OperatorName& name, const Inputs& in) {
  constexpr int64_t kIndexBytes = 8;
  Operation out = base(OperationKind::indexing, in);
  if (in.tensors.size() < 2) {
    if (!in.tensors.empty()) out.bytes_written = in.tensors[0].bytes();
    return out;
  }
  const Tensor &x = in.tensors[0], &index = in.tensors[1];
  out.element_bytes = x.element_bytes;
  // x[i, j] has an index for each of the first dimensions, x[i] may have one of several dimensions.
  const size_t indexed = name.form == OperatorForm::index ? in.tensors.size() - 1 : 1;
  const int64_t row = elements_of(x, indexed, x.sizes.size());
  const bool by_rows =
      name.form == OperatorForm::rows_by_index || (name.form == OperatorForm::index && x.sizes.size() > index.sizes.size());
  if (by_rows) {
    const int64_t moved = bounded_product({index.count(), row, x.element_bytes});
    out.bytes_read = moved + index.bytes();
    out.bytes_written = moved;
  } else if (name.form == OperatorForm::embedding_gradient) {
    // (grad, indices, number of weights). The result's zeros are an operator of their own.
    const int64_t count = index.count();
    const auto [segments, partials] = embedding_sums(count, integer(in, 2).value_or(count));
    const int64_t width = x.sizes.empty() ? 1 : x.sizes.back();
    const int64_t sums = count > kFewIndices ? bounded_product({segments, width, 4}) : 0;
    out.bytes_read = x.bytes() + index.bytes() + sums;
    out.bytes_written = bounded_product({segments, width, x.element_bytes}) + sums;
    if (count > kFewIndices) out.summed_rows = count + partials + segments;
    out.columns = width;
    out.rows = count;
  } else if (name.stem.ends_with("index_put") || name.stem == "_index_put_impl") {
    // (x, indices, values): the profiler leaves out the list of indices, so the number of rows comes from the values.
    const Tensor& values = in.tensors.back();
    const size_t same = same_at_the_end(x, values), indexed_dimensions = x.sizes.size() - same;
    const int64_t row_elements = elements_of(x, indexed_dimensions, x.sizes.size());
    out.columns = elements_of(x, 0, indexed_dimensions);  // places
    out.rows = in.tensors.size() > 2 ? index.count() : values.count() / std::max<int64_t>(1, row_elements);
    const int64_t moved = bounded_product({values.count(), x.element_bytes});
    out.bytes_read = 2 * moved + bounded_product({out.rows, kIndexBytes});
    out.bytes_written = moved;
  } else if (name.in_place) {
    out.rows = index.count();
    out.columns = x.sizes.empty() ? 1 : x.sizes[0];  // places
    const int64_t moved = (in.tensors.size() > 2 ? in.tensors.back().count() : index.count()) * x.element_bytes;
    out.bytes_read = 2 * moved + index.bytes();
    out.bytes_written = moved;
  } else {
    const int64_t moved = index.count() * x.element_bytes;
    out.bytes_read = std::min(out.bytes_read, moved + index.bytes());
    out.bytes_written = moved;
  }
  return out;
}

// nll_loss_forward(x, target, ...) and nll_loss_backward(grad, x, target, ...), aten/src/ATen/native/cuda/NLLLoss2d.cu, Loss.cu. The zeros
// of the backward's result are an operator of their own.
Operation loss_by_index(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::indexing, in);
  const size_t x = name.backward ? 1 : 0;
  if (in.tensors.size() < x + 2) return out;
  const int64_t rows = in.tensors[x + 1].count();
  const int64_t elements = bounded_product({rows, in.tensors[x].element_bytes});
  out.bytes_read = elements + in.tensors[x + 1].bytes();
  out.bytes_written = name.backward ? elements : in.tensors[x].element_bytes;
  out.rows = rows;
  if (name.backward) out.pass = Pass::backward;
  out.flops = static_cast<double>(rows);
  return out;
}

// Threads go along `to`. Elements that are adjacent in `from` are read one after another only where nothing is between them in `to`.
void set_far_reads(const Tensor& to, const Tensor& from, Operation* out) {
  const size_t adjacent = from.innermost(), next = to.innermost();
  if (to.sizes.size() != from.sizes.size() || adjacent >= to.strides.size() || next >= from.strides.size()) return;
  if (from.strides[adjacent] != 1 || bounded_product({from.strides[next], from.element_bytes}) < kAccessBytes) return;
  out->far_lines = 1;
  for (size_t i = 0; i < to.sizes.size(); ++i)
    if (i < to.strides.size() && to.strides[i] < to.strides[adjacent] && from.strides[i] != 0)
      out->far_lines = bounded_product({out->far_lines, to.sizes[i]});
  out->far_elements = from.count();
}

// Lines of memory that 32 threads read, which are neighbours in `to`.
int64_t lines_of_warp(const Tensor& to, const Tensor& from) {
  std::vector<size_t> order;
  for (size_t i = 0; i < to.sizes.size(); ++i)
    if (to.sizes[i] > 1 && i < to.strides.size() && i < from.strides.size()) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return to.strides[i]; });
  int64_t threads = 32, lines = 1;
  for (const size_t i : order) {
    const int64_t along = std::min(threads, to.sizes[i]),
                  step = bounded_product({std::max<int64_t>(0, from.strides[i]), from.element_bytes});
    lines *= step >= kAccessBytes ? along : std::max<int64_t>(1, (along * step + kAccessBytes - 1) / kAccessBytes);
    threads = (threads + to.sizes[i] - 1) / to.sizes[i];
    if (threads <= 1) break;
  }
  return std::min<int64_t>(lines, 32);
}

Operation copying(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::copy, in);
  if (in.tensors.empty()) return out;
  if (name.form == OperatorForm::copy_to && in.tensors.size() > 1) {
    const Tensor &to = in.tensors[0], &from = in.tensors[1];
    out.from_host = !from.on_card;
    out.to_host = !to.on_card;
    const bool on_card = from.on_card && to.on_card;
    out.bytes_read = from.on_card ? on_card ? from.touched_bytes() : from.bytes() : 0;
    out.bytes_written = to.on_card ? on_card ? to.touched_bytes() : to.bytes() : 0;
    out.strided = to.innermost() != from.innermost();
    if (on_card && out.strided) {
      set_far_reads(to, from, &out);
      out.warp_lines = lines_of_warp(to, from);
    }
  } else {
    // cat(list), split_with_sizes_copy(tensor, ...), both also with the tensors to write.
    const auto& sources = in.arguments[0].tensors;
    if (!sources.empty()) out.bytes_read = read_bytes({sources.begin(), sources.end()});
    const bool to_named = in.arguments[0].kind == ArgumentKind::tensors && in.tensors.size() == sources.size() + 1;
    out.bytes_written = to_named ? in.tensors.back().bytes() : out.bytes_read;
    out.indexed = in.tensors.size() > 1;  // each element's address is computed
  }
  return out;
}

// addmm(bias, a, b) and its batched forms: the product is a library's call, which finds the bias in its result.
Operation bias_of_product(const Inputs& in) {
  Operation out = base(OperationKind::copy, in);
  if (in.tensors.size() < 3 || in.tensors[1].sizes.size() < 2 || in.tensors[2].sizes.empty()) return out;
  const Tensor &bias = in.tensors[0], &a = in.tensors[1];
  const int64_t rows = a.count() / std::max<int64_t>(1, a.sizes.back());
  out.bytes_read = bias.bytes();
  out.bytes_written = bounded_product({rows, in.tensors[2].sizes.back(), bias.element_bytes});
  out.indexed = true;
  return out;
}

// bitsandbytes keeps two weights in a byte, in blocks that have a scale each. The last argument is the type of the result, a ScalarType.
Operation unpack_4bit(const Inputs& in) {
  constexpr int64_t kFloat = 6;
  Operation out = base(OperationKind::copy, in);
  const int64_t element_bytes = last_integer(in, 0) == kFloat ? 4 : 2;
  out.bytes_written = bounded_product({2 * element_bytes, in.tensors[0].count()});
  return out;
}

// gemm_4bit(x, packed weights, ...).
Operation product_4bit(const Inputs& in) {
  Operation out = base(OperationKind::gemm, in);
  if (in.tensors.size() < 2 || in.tensors[0].sizes.empty()) return out;
  const Tensor& x = in.tensors[0];
  GemmShape& shape = out.gemm;
  shape.k = std::max<int64_t>(1, x.sizes.back());
  shape.m = x.count() / shape.k;
  shape.n = 2 * in.tensors[1].count() / shape.k;
  shape.b_transposed = true;
  out.element_bytes = x.element_bytes;
  out.precision = type_precision(x.dtype);
  out.bytes_written = bounded_product({shape.m, shape.n, x.element_bytes});
  out.flops = 2 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return out;
}

// grouped_mm(a, b, ends): of the two, one or both have a dimension of groups. What has none is divided along its rows, columns, or the
// inner dimension of both; groups then have the same size here. Scaled products have their scales before the ends.
Operation grouped_product(const Inputs& in) {
  Operation out = base(OperationKind::gemm, in);
  if (in.tensors.size() < 2 || in.tensors[0].sizes.size() < 2 || in.tensors[1].sizes.size() < 2) return out;
  const Tensor &a = in.tensors[0], &b = in.tensors[1];
  const bool a_grouped = a.sizes.size() > 2, b_grouped = b.sizes.size() > 2;
  const auto ends = std::find_if(in.tensors.begin() + 2, in.tensors.end(), [](const Tensor& one) { return one.dtype == "int32"; });
  GemmShape& shape = out.gemm;
  shape.batch = std::max<int64_t>(1, a_grouped ? a.sizes[0] : b_grouped ? b.sizes[0] : ends != in.tensors.end() ? ends->count() : 1);
  const auto of_group = [&](int64_t size, bool is_divided) { return is_divided ? (size + shape.batch - 1) / shape.batch : size; };
  shape.m = of_group(a.sizes[a.sizes.size() - 2], !a_grouped && b_grouped);
  shape.n = of_group(b.sizes.back(), a_grouped && !b_grouped);
  shape.k = of_group(a.sizes.back(), !a_grouped && !b_grouped);
  out.element_bytes = a.element_bytes;
  out.precision = type_precision(a.dtype);
  out.bytes_written = bounded_product({shape.batch, shape.m, shape.n, std::max(2, a.element_bytes)});
  out.flops = 2 * static_cast<double>(a.sizes[a.sizes.size() - 2]) * static_cast<double>(b.sizes.back()) *
              static_cast<double>(a.sizes.back()) * static_cast<double>(a_grouped && b_grouped ? shape.batch : 1);
  return out;
}

Operation update(const Inputs& in) {
  Operation out = base(OperationKind::optimizer, in);
  out.bytes_written = out.bytes_read - in.tensors[0].bytes();
  return out;
}

// aten/src/ATen/native/cuda/MultiTensorApply.cuh: a block has a chunk of a tensor, and its threads go through the chunk four elements at a
// time. They wait for each list's tensor, and once more to write.
int64_t waits_of_lists(const std::vector<std::vector<Tensor>>& lists) {
  constexpr int64_t kChunk = 65536, kRound = int64_t{512} * 4;  // elements; threads of a block and their elements
  int64_t largest = 0, read = 0;
  for (const Tensor& tensor : lists[0]) largest = std::max(largest, tensor.count());
  for (const std::vector<Tensor>& list : lists)
    if (std::ranges::any_of(list, [&](const Tensor& tensor) { return tensor.count() == largest; })) ++read;
  return (std::min(largest, kChunk) + kRound - 1) / kRound * (read + 1);
}

// Kernels of optimizers and of other operators on lists of tensors. Each list is read; the first is written.
Operation optimizer(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::optimizer, in);
  const auto bytes = [](const std::vector<Tensor>& list) {
    int64_t sum = 0;
    for (const Tensor& tensor : list) sum += tensor.bytes();
    return sum;
  };
  if (in.lists.empty()) return out;
  out.waited_loads = waits_of_lists(in.lists);
  out.bytes_read = 0;
  for (const auto& list : in.lists) out.bytes_read += bytes(list);
  const auto has = [&](std::string_view part) { return name.stem.find(part) != std::string_view::npos; };
  if (has("_fused_adam") || has("_fused_sgd") || has("_fused_adagrad")) {
    out.bytes_written = 0;  // writes all lists but the second, which holds the gradients
    for (size_t i = 0; i < in.lists.size(); ++i)
      if (i != 1) out.bytes_written += bytes(in.lists[i]);
  } else if (has("norm")) {
    out.bytes_written = 4 * static_cast<int64_t>(in.lists[0].size());
    out.waited_loads = (out.waited_loads + 1) / 2;  // its second kernel only adds the chunks' sums
  } else if (has("zero")) {
    out.bytes_read = 0;
    out.bytes_written = bytes(in.lists[0]);
    out.waited_loads = 0;
  } else if (has("copy")) {
    out.bytes_read = in.lists.size() > 1 ? bytes(in.lists[1]) : 0;
    out.bytes_written = bytes(in.lists[0]);
  } else {
    out.bytes_written = bytes(in.lists[0]);
  }
  return out;
}

// ---- images: what a thread does for each element (aten/src/ATen/native/cuda) -----------------------------------------------------------

// The numbers of a window that elements are read from: lines of memory, and numbers of each line.
struct Window {
  double lines = 1, columns = 1;
  double area() const { return lines * columns; }
};

// `along(i)`: the size along spatial dimension i.
template <class Along>
Window window_of(size_t spatial, bool channels_last, const Along& along) {
  Window out;
  for (size_t i = 0; i + 1 < spatial; ++i) out.lines *= std::max(1.0, along(i));
  if (spatial > 0) out.columns = std::max(1.0, along(spatial - 1));
  // Where channels are together, each place is in another line.
  return channels_last ? Window{out.area(), 1} : out;
}

bool has_channels_last(const Tensor& x) { return x.sizes.size() > 3 && x.innermost() == 1; }

double size_at(const std::vector<int64_t>& sizes, size_t i) {  // a single number is for all dimensions
  return sizes.empty() ? 1 : static_cast<double>(std::max<int64_t>(1, sizes[std::min(i, sizes.size() - 1)]));
}

void read_window(const Window& window, ElementWork* work) {
  work->waited_loads = window.lines;
  work->near_loads = window.lines * (window.columns - 1);
}

// (x, window, stride, ...), backward (grad, x, window, stride, ...): AveragePool2d.cu, DilatedMaxPool2d.cu and their 3d forms.
void set_pooling_work(const OperatorName& name, const Inputs& in, ElementWork* work) {
  const size_t first = name.backward ? 2 : 1;
  const std::vector<int64_t> sizes = integers(in, first), steps = integers(in, first + 1);
  const Tensor& x = in.tensors[0];
  const bool last = has_channels_last(x), finds_largest = name.stem.find("max") != std::string_view::npos;
  const size_t spatial = name.stem.find("3d") != std::string_view::npos ? 3 : 2;
  const auto along = [&](size_t i) { return size_at(sizes, i) / (name.backward ? size_at(steps.empty() ? sizes : steps, i) : 1); };
  read_window(window_of(spatial, last, along), work);
  if (name.backward && finds_largest) {  // the place of the largest, then the gradient
    work->waited_loads *= 2;
    work->near_loads *= 2;
  }
  work->divisions = finds_largest ? (name.backward ? 0 : 2) : last || name.backward ? 6 : 2;
}

// (x, size), backward (grad, x): AdaptiveAveragePooling.cu, AdaptiveMaxPooling2d.cu. Each window's gradient is added to its elements.
void set_adaptive_work(const OperatorName& name, const Inputs& in, int64_t written, ElementWork* work) {
  const Tensor& x = in.tensors[0];
  const double area = static_cast<double>(name.backward ? written : x.count()) /
                      static_cast<double>(std::max<int64_t>(1, name.backward ? x.count() : written));
  const double side = std::max(1.0, std::sqrt(area));
  if (!name.backward) return read_window(window_of(2, has_channels_last(x), [&](size_t) { return side; }), work);
  constexpr double kSectorBytes = 32;
  work->waited_loads = 1;
  if (has_channels_last(x)) return;  // each element reads its window's gradient
  work->elements = x.count();
  if (name.stem.find("max") != std::string_view::npos) {  // one element of each window
    work->atomics = 1;
    return;
  }
  work->atomics = area;
  work->atomic_sectors = area * static_cast<double>(x.count()) * std::min(1.0, side * x.element_bytes / kSectorBytes);
}

// (x, size, ...), backward (grad, size, size of x, ...): UpSample*.cu.
void set_upsampling_work(const OperatorName& name, const Inputs& in, int64_t written, ElementWork* work) {
  const auto is = [&](std::string_view part) { return name.stem.find(part) != std::string_view::npos; };
  const Tensor& x = in.tensors[0];
  const bool last = has_channels_last(x);
  const size_t spatial = is("3d") ? 3 : is("1d") ? 1 : 2;
  const int64_t images = x.sizes[0], planes = x.sizes.size() > 1 ? bounded_product({images, x.sizes[1]}) : images;
  if (is("nearest")) {
    if (!name.backward) {
      work->waited_loads = 1;
      return;
    }
    const double area = static_cast<double>(x.count()) / static_cast<double>(std::max<int64_t>(1, written));
    const double side = std::pow(std::max(1.0, area), 1.0 / static_cast<double>(spatial));
    read_window(window_of(spatial, last, [&](size_t) { return side; }), work);
    if (!last) work->of_thread = images;
    return;
  }
  const double taps = is("bicubic") ? 16 : std::pow(2, spatial);
  work->waited_loads = 1;
  if (name.backward) {
    work->elements = x.count();
    work->atomics = taps;
  } else {
    work->joined_loads = taps - 1;
  }
  // A thread has a place and goes through all planes, but for the backward of bilinear2d.
  if (last || (name.backward && is("bilinear"))) {
    work->divisions = 6;
  } else {
    work->of_thread = planes;
  }
}

// (x, grid, mode, ...), backward (grad, x, grid, mode, ...): GridSampler.cu. A thread has a place and goes through the channels.
void set_sampling_work(const OperatorName& name, const Inputs& in, ElementWork* work) {
  const size_t grid = name.backward ? 2 : 1;
  if (in.tensors.size() <= grid || in.tensors[0].sizes.size() < 2) return;
  const int64_t mode = integer(in, grid + 1).value_or(0);
  const double taps = mode == 1 ? 1 : mode == 2 ? 16 : std::pow(2, in.tensors[0].sizes.size() - 2);
  work->of_thread = in.tensors[0].sizes[1];
  const auto sides = static_cast<int64_t>(std::max<size_t>(1, in.tensors[0].sizes.size() - 2));
  work->elements = bounded_product({in.tensors[grid].count() / sides, work->of_thread});
  work->waited_loads = name.backward ? 2 : 1;
  work->joined_loads = taps - 1;
  if (!name.backward) return;
  work->atomics = taps;
  work->atomic_sectors = taps * static_cast<double>(work->elements);
}

// (x, window, dilation, padding, stride), backward of unfold (x, size, window, dilation, padding, stride): im2col.cuh.
Operation unfolding(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::elementwise, in);
  const bool folds = name.stem == "col2im";
  const std::vector<int64_t> sizes = integers(in, folds ? 2 : 1), steps = integers(in, folds ? 5 : 4);
  const Window window = window_of(2, folds, [&](size_t i) { return size_at(sizes, i) / size_at(steps, i); });
  const auto count = static_cast<double>(in.tensors[0].count());
  ElementWork& work = out.element_work;
  work.elements = folds ? static_cast<int64_t>(count / window.area()) : in.tensors[0].count();
  out.bytes_written =
      std::min(kMostTensorBytes, static_cast<int64_t>(folds ? count / window.area() : count * window.area())) * out.element_bytes;
  read_window(window, &work);
  work.divisions = folds ? 4 + 2 * window.area() : 4;
  return out;
}

// (x, padding), backward (grad, x, padding): ReflectionPad.cu, ReplicationPadding.cu. The backward adds to zeros.
Operation padding(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::elementwise, in);
  const Tensor& x = in.tensors[0];
  std::vector<int64_t> sizes = x.sizes;
  const std::vector<int64_t> more = integers(in, 1);  // of the last dimension first, two numbers for each
  for (size_t i = 0; i + 1 < more.size() && i / 2 < sizes.size(); i += 2) sizes[sizes.size() - 1 - i / 2] += more[i] + more[i + 1];
  const int64_t elements = name.backward ? x.count() : std::max<int64_t>(0, bounded_product(sizes));
  out.bytes_read = x.bytes();
  out.bytes_written = bounded_product({name.backward && in.tensors.size() > 1 ? in.tensors[1].count() : elements, x.element_bytes});
  out.element_work = {.elements = elements, .waited_loads = 1, .atomics = name.backward ? 1.0 : 0.0, .divisions = 1};
  return out;
}

void set_image_work(const OperatorName& name, const Inputs& in, Operation* out) {
  const auto is = [&](std::string_view part) { return name.stem.find(part) != std::string_view::npos; };
  if (in.tensors[0].sizes.empty()) return;
  ElementWork& work = out->element_work;
  const int64_t written = out->bytes_written / (in.tensors[0].element_bytes + (!name.backward && is("with_indices") ? 8 : 0));
  work.elements = written;
  if (is("grid_sampler")) {
    set_sampling_work(name, in, &work);
  } else if (is("upsample")) {
    set_upsampling_work(name, in, written, &work);
  } else if (is("adaptive")) {
    set_adaptive_work(name, in, written, &work);
  } else if (is("max_pool2d_with") || is("max_pool3d_with") || is("avg_pool")) {
    set_pooling_work(name, in, &work);
  } else {
    work.elements = 0;
  }
}

// How much larger upsampling makes a tensor. PyTorch's profiler often leaves the lists of sizes out; the factors for each dimension, if
// they are recorded, are the last arguments. Without them: twice in each dimension.
double upsampling_factor(const OperatorName& name, const Inputs& in) {
  double factor = 1;
  bool known = false;
  for (const OperatorArgument& argument : in.arguments) {
    if (argument.kind != ArgumentKind::number || argument.number <= 0) continue;
    factor *= argument.number;
    known = true;
  }
  const double spatial = name.stem.find("3d") != std::string_view::npos ? 3 : name.stem.find("1d") != std::string_view::npos ? 1 : 2;
  return known ? factor : std::pow(2, spatial);
}

int64_t times(int64_t count, double factor) { return static_cast<int64_t>(std::llround(static_cast<double>(count) * factor)); }

Operation pooling(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::elementwise, in);
  if (in.tensors.empty()) return out;
  const Tensor& x = in.tensors[0];
  const bool with_indices = name.stem.find("with_indices") != std::string_view::npos;
  const bool upsamples = name.stem.find("upsample") != std::string_view::npos;
  if (name.backward) {
    // (grad, x, ...) writes a tensor of x's size. Upsampling has x's size in its second list of numbers.
    int64_t written = in.tensors.size() > 1 ? in.tensors[1].count() : 0;
    const std::vector<int64_t> sizes = integers(in, 2);
    if (written == 0 && !sizes.empty()) written = bounded_product(sizes);
    if (written == 0 && upsamples) written = times(x.count(), 1 / upsampling_factor(name, in));
    out.bytes_read = x.bytes() + (with_indices && in.tensors.size() > 2 ? in.tensors[2].bytes() : 0);
    out.bytes_written = bounded_product({written, x.element_bytes});
  } else {
    const bool to_size = name.stem.find("adaptive") != std::string_view::npos || upsamples;
    const std::vector<int64_t> first = integers(in, 1), second = integers(in, 2);
    const std::vector<int64_t>& steps = second.empty() ? first : second;
    int64_t written = x.count();
    const size_t spatial = first.size();
    if (upsamples && spatial == 0) written = times(x.count(), upsampling_factor(name, in));
    if (spatial > 0 && spatial < x.sizes.size()) {
      written = 1;
      for (size_t i = 0; i < x.sizes.size(); ++i) {
        const bool inside = i + spatial >= x.sizes.size();
        const size_t at = inside ? i + spatial - x.sizes.size() : 0;
        const int64_t step = std::max<int64_t>(1, steps[std::min(at, steps.size() - 1)]);  // a single number is for all dimensions
        written = bounded_product({written, !inside ? x.sizes[i] : to_size ? first[at] : (x.sizes[i] + step - 1) / step});
      }
    }
    out.bytes_written = bounded_product({written, x.element_bytes + (with_indices ? 8 : 0)});
  }
  set_image_work(name, in, &out);
  return out;
}

Operation elementwise(const OperatorName& name, const Inputs& in) {
  Operation out = base(OperationKind::elementwise, in);
  if (in.tensors.empty()) return out;
  const int64_t count = broadcast_count(in.tensors);
  if (name.in_place) {
    out.bytes_written = in.tensors[0].bytes();
  } else if (name.form == OperatorForm::comparison) {
    out.bytes_written = count;
  } else if (name.form == OperatorForm::dropout_with_mask) {
    out.bytes_written = count * (in.tensors[0].element_bytes + 1);
  } else if (name.form == OperatorForm::half) {
    out.bytes_written = count / 2 * in.tensors[0].element_bytes;
  } else {
    out.bytes_written = count * widest(in.tensors);
  }
  out.flops = static_cast<double>(count);
  // Where layouts differ, some tensors are not read in the order of their memory.
  const size_t inner = in.tensors[0].innermost();
  for (const Tensor& tensor : in.tensors)
    if (tensor.sizes.size() == in.tensors[0].sizes.size() && tensor.bytes() > out.bytes_read / 8 && tensor.innermost() != inner)
      out.strided = true;
  // Each element's address is computed in tensors that are smaller than the largest.
  const auto largest =
      std::max_element(in.tensors.begin(), in.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.count() < b.count(); });
  out.indexed = std::any_of(in.tensors.begin(), in.tensors.end(),
                            [&](const Tensor& tensor) { return tensor.count() > 1 && tensor.sizes != largest->sizes; });
  return out;
}

// Kernels that only write. They cost the same as other elementwise kernels.
Operation fill(const Inputs& in) {
  Operation out = base(OperationKind::elementwise, in);
  out.bytes_written = in.tensors[0].bytes();
  out.bytes_read = 0;
  return out;
}

}  // namespace

bool operator_is_known(std::string_view name) { return OperatorName(name).form != OperatorForm::unknown; }

std::optional<Operation> operator_operation(std::string_view whole, const std::vector<OperatorArgument>& arguments) {
  const Inputs in = inputs_of(arguments);
  if (std::ranges::none_of(in.tensors, &Tensor::on_card)) return std::nullopt;
  const OperatorName name(whole);
  switch (name.form) {
    case OperatorForm::by_threads:
      return std::nullopt;
    case OperatorForm::lists:
      return optimizer(name, in);
    case OperatorForm::attention:
      return attention(name, in);
    case OperatorForm::batch_norm:
    case OperatorForm::group_norm:
    case OperatorForm::softmax:
    case OperatorForm::layer_norm:
    case OperatorForm::rms_norm:
      return normalization(name, in);
    case OperatorForm::convolution:
      return convolution(name, in);
    case OperatorForm::reduction:
    case OperatorForm::reduction_of_one:
    case OperatorForm::loss:
      return reduction(name, in);
    case OperatorForm::loss_by_index:
      return loss_by_index(name, in);
    case OperatorForm::rows_by_index:
    case OperatorForm::index:
    case OperatorForm::embedding_gradient:
    case OperatorForm::indexing:
      return indexing(name, in);
    case OperatorForm::sort:
      return sort(in);
    case OperatorForm::scan:
      return scan(in);
    case OperatorForm::select:
      return select(in);
    case OperatorForm::search:
      return search(in);
    case OperatorForm::copy:
    case OperatorForm::copy_to:
      return copying(name, in);
    case OperatorForm::fill:
      return fill(in);
    case OperatorForm::bias:
      return bias_of_product(in);
    case OperatorForm::unpack_4bit:
      return unpack_4bit(in);
    case OperatorForm::grouped_product:
      return grouped_product(in);
    case OperatorForm::product_4bit:
      return product_4bit(in);
    case OperatorForm::update:
      return update(in);
    case OperatorForm::pooling:
      return pooling(name, in);
    case OperatorForm::unfolding:
      return unfolding(name, in);
    case OperatorForm::padding:
      return padding(name, in);
    case OperatorForm::elementwise:
    case OperatorForm::comparison:
    case OperatorForm::dropout_with_mask:
    case OperatorForm::half:
    case OperatorForm::unknown:
      break;
  }
  return elementwise(name, in);
}

}  // namespace gpucast

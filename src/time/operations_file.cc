#include "src/time/operations_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <variant>

#include "gpucast/error.h"
#include "src/base/gzip_lines.h"

namespace gpucast {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr int64_t kMostNumber = int64_t{1} << 50;  // products of some of these stay in range

// A field of T: its name, and where it goes.
template <class T>
struct Field {
  const char* name;
  std::variant<int64_t T::*, int T::*, double T::*, bool T::*, Pass T::*, CollectiveKind T::*, int64_t (T::*)[3]> member;
};

const Field<GemmShape> kGemm[] = {{"batch", &GemmShape::batch},
                                  {"m", &GemmShape::m},
                                  {"n", &GemmShape::n},
                                  {"k", &GemmShape::k},
                                  {"a_transposed", &GemmShape::a_transposed},
                                  {"b_transposed", &GemmShape::b_transposed}};
const Field<ConvolutionShape> kConvolution[] = {{"pass", &ConvolutionShape::pass},
                                                {"batch", &ConvolutionShape::batch},
                                                {"in_channels", &ConvolutionShape::in_channels},
                                                {"out_channels", &ConvolutionShape::out_channels},
                                                {"groups", &ConvolutionShape::groups},
                                                {"in", &ConvolutionShape::in},
                                                {"out", &ConvolutionShape::out},
                                                {"window", &ConvolutionShape::window},
                                                {"stride", &ConvolutionShape::stride},
                                                {"channels_last", &ConvolutionShape::channels_last},
                                                {"transposed", &ConvolutionShape::transposed},
                                                {"by_library", &ConvolutionShape::by_library}};
const Field<AttentionShape> kAttention[] = {
    {"pass", &AttentionShape::pass},         {"batch", &AttentionShape::batch},         {"heads", &AttentionShape::heads},
    {"kv_heads", &AttentionShape::kv_heads}, {"queries", &AttentionShape::queries},     {"keys", &AttentionShape::keys},
    {"head_dim", &AttentionShape::head_dim}, {"value_dim", &AttentionShape::value_dim}, {"causal", &AttentionShape::causal},
    {"window", &AttentionShape::window},     {"prefill", &AttentionShape::prefill}};
const Field<CollectiveShape> kCollective[] = {{"kind", &CollectiveShape::kind},
                                              {"ranks", &CollectiveShape::ranks},
                                              {"nodes", &CollectiveShape::nodes},
                                              {"bytes", &CollectiveShape::bytes},
                                              {"calls", &CollectiveShape::calls}};
const Field<ElementWork> kElementWork[] = {{"elements", &ElementWork::elements},
                                           {"of_thread", &ElementWork::of_thread},
                                           {"waited_loads", &ElementWork::waited_loads},
                                           {"near_loads", &ElementWork::near_loads},
                                           {"joined_loads", &ElementWork::joined_loads},
                                           {"atomics", &ElementWork::atomics},
                                           {"atomic_sectors", &ElementWork::atomic_sectors},
                                           {"divisions", &ElementWork::divisions}};
const Field<Operation> kOperation[] = {{"element_bytes", &Operation::element_bytes},
                                       {"bytes_read", &Operation::bytes_read},
                                       {"bytes_written", &Operation::bytes_written},
                                       {"flops", &Operation::flops},
                                       {"launches", &Operation::launches},
                                       {"rows", &Operation::rows},
                                       {"columns", &Operation::columns},
                                       {"per_channel", &Operation::per_channel},
                                       {"channels_last", &Operation::channels_last},
                                       {"strided", &Operation::strided},
                                       {"indexed", &Operation::indexed},
                                       {"rereads", &Operation::rereads},
                                       {"in_registers", &Operation::in_registers},
                                       {"spatial_threads", &Operation::spatial_threads},
                                       {"sums_weights", &Operation::sums_weights},
                                       {"sums_by_columns", &Operation::sums_by_columns},
                                       {"one_block_threads", &Operation::one_block_threads},
                                       {"sort_bits", &Operation::sort_bits},
                                       {"sorted_elements", &Operation::sorted_elements},
                                       {"waited_loads", &Operation::waited_loads},
                                       {"waited_steps", &Operation::waited_steps},
                                       {"waiting_threads", &Operation::waiting_threads},
                                       {"merged_loads", &Operation::merged_loads},
                                       {"cast_tensors", &Operation::cast_tensors},
                                       {"moved_at_once", &Operation::moved_at_once},
                                       {"row_blocks", &Operation::row_blocks},
                                       {"draws", &Operation::draws},
                                       {"far_elements", &Operation::far_elements},
                                       {"far_lines", &Operation::far_lines},
                                       {"warp_lines", &Operation::warp_lines},
                                       {"summed_rows", &Operation::summed_rows},
                                       {"to_host", &Operation::to_host},
                                       {"from_host", &Operation::from_host},
                                       {"between_cards", &Operation::between_cards},
                                       {"pageable", &Operation::pageable},
                                       {"pass", &Operation::pass},
                                       {"layers", &Operation::layers}};

struct BadOperation {
  std::string what;
};

int64_t whole(element value, std::string_view name) {
  int64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS || number < 0 || number > kMostNumber) {
    throw BadOperation{fmt::format("'{}' is no whole number from 0 to 2^50", name)};
  }
  return number;
}

std::string_view text(element value, std::string_view name) {
  std::string_view out;
  if (value.get(out) != simdjson::SUCCESS) throw BadOperation{fmt::format("'{}' is no text", name)};
  return out;
}

template <class T>
struct SetField {
  T& out;
  std::string_view name;
  element value;

  void operator()(int64_t T::*member) const { out.*member = whole(value, name); }
  void operator()(int T::*member) const {
    const int64_t number = whole(value, name);
    if (number > 64) throw BadOperation{fmt::format("'{}' is larger than 64", name)};
    out.*member = static_cast<int>(number);
  }
  void operator()(double T::*member) const {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS || !std::isfinite(number) || number < 0) {
      throw BadOperation{fmt::format("'{}' is no finite number from 0", name)};
    }
    out.*member = number;
  }
  void operator()(bool T::*member) const {
    if (value.get(out.*member) != simdjson::SUCCESS) throw BadOperation{fmt::format("'{}' is neither true nor false", name)};
  }
  void operator()(Pass T::*member) const {
    out.*member = pass_from_name(text(value, name));
    if (out.*member == Pass::count_)
      throw BadOperation{fmt::format("'{}' is no pass: forward, data_gradient, weight_gradient, backward", name)};
  }
  void operator()(CollectiveKind T::*member) const {
    out.*member = collective_kind_from_name(text(value, name));
    if (out.*member == CollectiveKind::count_) throw BadOperation{fmt::format("no kind of collective is named '{}'", text(value, name))};
  }
  void operator()(int64_t (T::*member)[3]) const {
    simdjson::dom::array list;
    if (value.get(list) != simdjson::SUCCESS || list.size() > 3)
      throw BadOperation{fmt::format("'{}' is no list of up to 3 whole numbers", name)};
    size_t i = 0;
    for (const element entry : list) (out.*member)[i++] = whole(entry, name);
  }
};

template <class T, size_t size>
bool set_field(const Field<T> (&fields)[size], std::string_view name, element value, T* out) {
  for (const Field<T>& field : fields) {
    if (name != field.name) continue;
    std::visit(SetField<T>{*out, name, value}, field.member);
    return true;
  }
  return false;
}

template <class T, size_t size>
void set_fields(const Field<T> (&fields)[size], std::string_view of, element value, T* out) {
  object entries;
  if (value.get(entries) != simdjson::SUCCESS) throw BadOperation{fmt::format("'{}' is no object", of)};
  for (const auto& [name, entry] : entries) {
    if (!set_field(fields, name, entry, out)) throw BadOperation{fmt::format("'{}' has no field '{}'", of, name)};
  }
}

// These times are computed from a shape, so a line must give these fields.
void require(object line, const char* kind, std::initializer_list<const char*> names) {
  object shape;
  bool there = line[kind].get(shape) == simdjson::SUCCESS;
  for (const char* name : names) there = there && shape[name].error() == simdjson::SUCCESS;
  if (there) return;
  throw BadOperation{fmt::format("{} {} needs its shape: '{}' with {}", *kind == 'a' ? "an" : "a", kind, kind, fmt::join(names, ", "))};
}

void check_convolution(const ConvolutionShape& s) {
  if (s.groups == 0) throw BadOperation{"'groups' is 0"};
  if (s.in_channels % s.groups != 0 || s.out_channels % s.groups != 0) {
    throw BadOperation{fmt::format("{} groups do not divide {} channels in and {} out", s.groups, s.in_channels, s.out_channels)};
  }
  if (std::ranges::count(s.stride, 0) > 0) throw BadOperation{"a 'stride' is 0"};
}

// The sizes that follow from a shape, where a line gives only the shape: each tensor's numbers once. In floating point, because products of
// sizes may exceed 64 bits.
struct Moved {
  double flops = 0, read = 0, written = 0;  // read, written: numbers, not bytes
};

Moved moved(const GemmShape& s) {
  const auto batch = static_cast<double>(s.batch), m = static_cast<double>(s.m), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
  return {2 * batch * m * n * k, batch * (m + n) * k, batch * m * n};
}

Moved moved(const ConvolutionShape& s) {
  const auto volume = [](const int64_t(&size)[3]) {
    return static_cast<double>(size[0]) * static_cast<double>(size[1]) * static_cast<double>(size[2]);
  };
  const auto batch = static_cast<double>(s.batch), in_channels = static_cast<double>(s.in_channels),
             out_channels = static_cast<double>(s.out_channels);
  const double x = batch * in_channels * volume(s.in), y = batch * out_channels * volume(s.out);
  const double w = in_channels * out_channels / static_cast<double>(s.groups) * volume(s.window);
  const double flops = 2 * batch * w * volume(s.transposed ? s.in : s.out);
  switch (s.pass) {
    case Pass::data_gradient:
      return {flops, y + w, x};
    case Pass::weight_gradient:
      return {flops, x + y, w};
    case Pass::backward:
      return {2 * flops, x + w + y, x + w};
    default:
      return {flops, x + w, y};
  }
}

// As in attention.cc: a causal query sees half of the keys, and the backward has five products instead of two.
Moved moved(const AttentionShape& s) {
  const auto keys = static_cast<double>(s.keys), head_dim = static_cast<double>(s.head_dim);
  const double value_dim = s.value_dim > 0 ? static_cast<double>(s.value_dim) : head_dim;
  const double rows = static_cast<double>(s.batch) * static_cast<double>(s.heads) * static_cast<double>(s.queries);
  const double kv_rows = static_cast<double>(s.batch) * static_cast<double>(std::max<int64_t>(1, s.kv_heads)) * keys;
  double seen = s.causal ? keys / 2 : keys;
  if (s.window > 0) seen = std::min(seen, static_cast<double>(s.window));
  const double flops = 2 * rows * seen * (head_dim + value_dim);
  const double q_k_v = rows * head_dim + kv_rows * (head_dim + value_dim), out = rows * value_dim;
  if (s.pass == Pass::forward) return {flops, q_k_v, out};
  return {2.5 * flops, q_k_v + 2 * out, q_k_v};
}

void put_sizes(const Moved& moved, Operation* out) {
  constexpr double kMostBytes = static_cast<double>(int64_t{1} << 60);  // two of these can be added
  if (moved.flops == 0) return;                                         // an empty product reads nothing
  out->flops = moved.flops;
  out->bytes_read = static_cast<int64_t>(std::min(moved.read * out->element_bytes, kMostBytes));
  out->bytes_written = static_cast<int64_t>(std::min(moved.written * out->element_bytes, kMostBytes));
}

void check_collective(const CollectiveShape& s) {
  for (const auto& [name, number] : {std::pair{"ranks", s.ranks}, {"nodes", s.nodes}, {"calls", s.calls}})
    if (number == 0) throw BadOperation{fmt::format("'{}' is 0", name)};
  if (s.nodes > s.ranks) throw BadOperation{fmt::format("{} ranks lie on {} nodes", s.ranks, s.nodes)};
}

// Checks the shape of a product or a collective. Computes its sizes from the shape where the line gives none.
void check_shape(object line, Operation* operation) {
  bool has_sizes = false;
  for (const char* name : {"flops", "bytes_read", "bytes_written"}) has_sizes = has_sizes || line[name].error() == simdjson::SUCCESS;
  Moved sizes;
  switch (operation->kind) {
    case OperationKind::gemm:
      require(line, "gemm", {"m", "n", "k"});
      sizes = moved(operation->gemm);
      break;
    case OperationKind::convolution:
      require(line, "convolution", {"batch", "in_channels", "out_channels"});
      check_convolution(operation->convolution);
      sizes = moved(operation->convolution);
      break;
    case OperationKind::attention:
      require(line, "attention", {"batch", "heads", "queries", "keys", "head_dim"});
      sizes = moved(operation->attention);
      break;
    case OperationKind::collective:
      require(line, "collective", {"kind", "ranks", "bytes"});
      check_collective(operation->collective);
      break;
    default:
      return;
  }
  if (!has_sizes) put_sizes(sizes, operation);
}

Operation operation_of(element line) {
  object fields;
  if (line.get(fields) != simdjson::SUCCESS) throw BadOperation{"it is no JSON object"};
  Operation operation;
  bool has_kind = false;
  for (const auto& [name, value] : fields) {
    if (name == "kind") {
      operation.kind = operation_kind_from_name(text(value, name));
      if (operation.kind == OperationKind::count_) throw BadOperation{fmt::format("no kind of operation is named '{}'", text(value, name))};
      has_kind = true;
    } else if (name == "precision") {
      operation.precision = precision_from_name(text(value, name));
      if (operation.precision == Precision::count_) throw BadOperation{fmt::format("no precision is named '{}'", text(value, name))};
    } else if (name == "gemm") {
      set_fields(kGemm, name, value, &operation.gemm);
    } else if (name == "convolution") {
      set_fields(kConvolution, name, value, &operation.convolution);
    } else if (name == "attention") {
      set_fields(kAttention, name, value, &operation.attention);
    } else if (name == "collective") {
      set_fields(kCollective, name, value, &operation.collective);
    } else if (name == "element_work") {
      set_fields(kElementWork, name, value, &operation.element_work);
    } else if (!set_field(kOperation, name, value, &operation)) {
      throw BadOperation{fmt::format("an operation has no field '{}'", name)};
    }
  }
  if (!has_kind) throw BadOperation{"it has no 'kind'"};
  check_shape(fields, &operation);
  return operation;
}

}  // namespace

Operation read_operation(std::string_view line, const std::function<std::string()>& where) {
  thread_local simdjson::dom::parser parser;  // its memory is used again for the next line
  try {
    element parsed;
    const auto error = parser.parse(line.data(), line.size(), false).get(parsed);
    if (error != simdjson::SUCCESS) throw BadOperation{fmt::format("it is no JSON ({})", simdjson::error_message(error))};
    return operation_of(parsed);
  } catch (const BadOperation& bad) {
    throw Error(fmt::format("this is no operation: {}", bad.what), where(), "docs/reference/operations-format.md says what a line holds");
  }
}

void read_operations(const std::string& path, const std::function<void(const Operation&)>& take) {
  GzipLines lines(path == "-" ? "/dev/stdin" : path);
  const auto where = [&] { return fmt::format("{}, line {}", path == "-" ? "standard input" : path, lines.line_number()); };
  std::string_view line;
  while (lines.next(&line)) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    take(read_operation(line, where));
  }
  if (lines.end() != GzipLines::End::complete) throw Error("the file ends before its end: it is cut short or damaged", where());
}

}  // namespace gpucast

#include "src/time/operations_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cmath>
#include <variant>

#include "gpucast/error.h"
#include "src/base/gzip_lines.h"

namespace gpucast {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr int64_t kMost = int64_t{1} << 50;  // products of some of these stay in range

// A field of T: its name, and where it goes.
template <class T>
struct Field {
  const char* name;
  std::variant<int64_t T::*, int T::*, double T::*, bool T::*, Pass T::*, int64_t (T::*)[3]> member;
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
const Field<Operation> kOperation[] = {{"element_bytes", &Operation::element_bytes},
                                       {"bytes_read", &Operation::bytes_read},
                                       {"bytes_written", &Operation::bytes_written},
                                       {"flops", &Operation::flops},
                                       {"launches", &Operation::launches},
                                       {"rows", &Operation::rows},
                                       {"columns", &Operation::columns},
                                       {"per_channel", &Operation::per_channel},
                                       {"strided", &Operation::strided},
                                       {"indexed", &Operation::indexed},
                                       {"to_host", &Operation::to_host},
                                       {"from_host", &Operation::from_host},
                                       {"pageable", &Operation::pageable},
                                       {"pass", &Operation::pass},
                                       {"ranks", &Operation::ranks}};

struct Bad {
  std::string what;
};

int64_t whole(element value, std::string_view name) {
  int64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS || number < 0 || number > kMost) {
    throw Bad{fmt::format("'{}' is no whole number from 0 to 2^50", name)};
  }
  return number;
}

std::string_view text(element value, std::string_view name) {
  std::string_view out;
  if (value.get(out) != simdjson::SUCCESS) throw Bad{fmt::format("'{}' is no text", name)};
  return out;
}

template <class T>
struct Put {
  T& out;
  std::string_view name;
  element value;

  void operator()(int64_t T::*member) const { out.*member = whole(value, name); }
  void operator()(int T::*member) const {
    const int64_t number = whole(value, name);
    if (number > 64) throw Bad{fmt::format("'{}' is larger than 64", name)};
    out.*member = static_cast<int>(number);
  }
  void operator()(double T::*member) const {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS || !std::isfinite(number) || number < 0) {
      throw Bad{fmt::format("'{}' is no finite number from 0", name)};
    }
    out.*member = number;
  }
  void operator()(bool T::*member) const {
    if (value.get(out.*member) != simdjson::SUCCESS) throw Bad{fmt::format("'{}' is neither true nor false", name)};
  }
  void operator()(Pass T::*member) const {
    out.*member = pass_from_name(text(value, name));
    if (out.*member == Pass::count_) throw Bad{fmt::format("'{}' is no pass: forward, data_gradient, weight_gradient, backward", name)};
  }
  void operator()(int64_t (T::*member)[3]) const {
    simdjson::dom::array list;
    if (value.get(list) != simdjson::SUCCESS || list.size() > 3) throw Bad{fmt::format("'{}' is no list of up to 3 whole numbers", name)};
    size_t i = 0;
    for (const element entry : list) (out.*member)[i++] = whole(entry, name);
  }
};

template <class T, size_t size>
bool put(const Field<T> (&fields)[size], std::string_view name, element value, T* out) {
  for (const Field<T>& field : fields) {
    if (name != field.name) continue;
    std::visit(Put<T>{*out, name, value}, field.member);
    return true;
  }
  return false;
}

template <class T, size_t size>
void put_all(const Field<T> (&fields)[size], std::string_view of, element value, T* out) {
  object entries;
  if (value.get(entries) != simdjson::SUCCESS) throw Bad{fmt::format("'{}' is no object", of)};
  for (const auto& [name, entry] : entries) {
    if (!put(fields, name, entry, out)) throw Bad{fmt::format("'{}' has no field '{}'", of, name)};
  }
}

Operation operation_of(element line) {
  object fields;
  if (line.get(fields) != simdjson::SUCCESS) throw Bad{"it is no JSON object"};
  Operation operation;
  bool has_kind = false;
  for (const auto& [name, value] : fields) {
    if (name == "kind") {
      operation.kind = operation_kind_from_name(text(value, name));
      if (operation.kind == OperationKind::count_) throw Bad{fmt::format("no kind of operation is named '{}'", text(value, name))};
      has_kind = true;
    } else if (name == "precision") {
      operation.precision = precision_from_name(text(value, name));
      if (operation.precision == Precision::count_) throw Bad{fmt::format("no precision is named '{}'", text(value, name))};
    } else if (name == "gemm") {
      put_all(kGemm, name, value, &operation.gemm);
    } else if (name == "convolution") {
      put_all(kConvolution, name, value, &operation.convolution);
    } else if (name == "attention") {
      put_all(kAttention, name, value, &operation.attention);
    } else if (!put(kOperation, name, value, &operation)) {
      throw Bad{fmt::format("an operation has no field '{}'", name)};
    }
  }
  if (!has_kind) throw Bad{"it has no 'kind'"};
  return operation;
}

}  // namespace

Operation read_operation(std::string_view line, const std::function<std::string()>& where) {
  thread_local simdjson::dom::parser parser;  // its memory serves the next line
  try {
    element parsed;
    const auto error = parser.parse(line.data(), line.size(), false).get(parsed);
    if (error != simdjson::SUCCESS) throw Bad{fmt::format("it is no JSON ({})", simdjson::error_message(error))};
    return operation_of(parsed);
  } catch (const Bad& bad) {
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

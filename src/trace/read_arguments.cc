#include "src/trace/read_arguments.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/bounded.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

// {"float32": [sizes, strides]}; then "cpu" or "again"
bool is_tensor(const Json& value) { return value.is_object() && value.size() == 1 && value.at(0).is_array(); }

TensorArgument tensor_of(const Json& value) {
  TensorArgument out;
  out.dtype = value.keys()[0];
  const Json& parts = value.at(0);
  if (!parts.empty())
    for (const Json& size : parts.at(0)) out.sizes.push_back(std::clamp<int64_t>(size.get<int64_t>(), 0, kMostTensorBytes));
  if (parts.size() > 1)
    for (const Json& stride : parts.at(1)) out.strides.push_back(stride.get<int64_t>());
  const std::string where = parts.size() < 3 ? "" : parts.at(2).get<std::string>();
  out.again = where == "again";
  out.on_card = where.empty() || out.again;
  return out;
}

OperatorArgument argument_of(const Json& value) {
  OperatorArgument out;
  if (is_tensor(value)) {
    out.kind = ArgumentKind::tensor;
    out.tensors.push_back(tensor_of(value));
  } else if (value.is_boolean()) {
    out.kind = ArgumentKind::boolean;
    out.boolean = value.get<bool>();
  } else if (value.is_integer()) {
    out.kind = ArgumentKind::integer;
    out.integer = value.get<int64_t>();
  } else if (value.is_number()) {
    out.kind = ArgumentKind::number;
    out.number = value.get<double>();
  } else if (value.is_array() && !value.empty() && is_tensor(value.at(0))) {
    out.kind = ArgumentKind::tensors;
    for (const Json& entry : value)
      if (is_tensor(entry)) out.tensors.push_back(tensor_of(entry));
  } else if (value.is_array()) {
    out.kind = ArgumentKind::integers;
    for (const Json& entry : value)
      if (entry.is_integer()) out.integers.push_back(std::clamp<int64_t>(entry.get<int64_t>(), -kMostTensorBytes, kMostTensorBytes));
  }
  return out;
}

std::string text(const Json& object, const char* key) { return object[key].get<std::string>(); }
std::optional<int64_t> number(const Json& object, const char* key) {
  const Json& value = object[key];
  return value.is_number() ? std::optional(std::clamp<int64_t>(value.get<int64_t>(), 0, kMostElements)) : std::nullopt;
}
std::vector<int64_t> numbers(const Json& object, const char* key) {
  std::vector<int64_t> out;
  for (const Json& value : object[key].values()) out.push_back(std::clamp<int64_t>(value.get<int64_t>(), 0, kMostElements));
  return out;
}

GraphOperation graph_operation(const Json& object) {
  GraphOperation out;
  out.op = text(object, "op");
  out.type = text(object, "type");
  out.x = numbers(object, "x");
  out.w = numbers(object, "w");
  out.y = numbers(object, "y");
  out.x_strides = numbers(object, "x_strides");
  out.stride = numbers(object, "stride");
  for (const Json& tensor : object["tensors"].values())
    out.tensors.push_back({text(tensor, "type"), numbers(tensor, "shape"), number(tensor, "virtual").value_or(0) != 0});
  return out;
}

}  // namespace

std::vector<OperatorArgument> operator_arguments(const Json& list) {
  std::vector<OperatorArgument> out;
  if (list.is_array())
    for (const Json& value : list) out.push_back(argument_of(value));
  return out;
}

CallArguments call_arguments(const Json& object) {
  CallArguments out;
  out.type = text(object, "type");
  out.type_c = text(object, "type_c");
  out.m = number(object, "m");
  out.n = number(object, "n");
  out.k = number(object, "k");
  out.batch = number(object, "batch");
  out.compute_type = number(object, "compute_type").value_or(0);
  out.a_transposed = text(object, "ta") != "n";
  out.b_transposed = text(object, "tb") != "n";
  out.type_out = text(object, "type_out");
  out.shape = numbers(object, "shape");
  out.strides = numbers(object, "strides");
  out.convolution = graph_operation(object);
  for (const Json& operation : object["operations"].values()) out.operations.push_back(graph_operation(operation));
  out.cell = text(object, "cell");
  out.layers = number(object, "layers").value_or(1);
  out.directions = number(object, "directions").value_or(1);
  out.hidden_size = number(object, "hidden_size").value_or(0);
  out.input_size = number(object, "input_size").value_or(0);
  out.steps = number(object, "steps").value_or(0);
  out.count = number(object, "count").value_or(0);
  out.world = number(object, "world").value_or(1);
  out.group = text(object, "group");
  out.peer = number(object, "peer").value_or(-1);
  out.joins = number(object, "joins").value_or(0) == 1;
  return out;
}

}  // namespace gpucast

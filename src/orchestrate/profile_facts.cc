#include "src/orchestrate/profile_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gpucast {
namespace {

using Json = nlohmann::json;

template <class T>
T value_or(const Json& object, const char* key, T fallback) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  if constexpr (std::is_same_v<T, bool>) return found->is_boolean() ? found->get<bool>() : fallback;
  if constexpr (std::is_same_v<T, std::string>) return found->is_string() ? found->get<std::string>() : fallback;
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) return found->is_number() ? found->get<T>() : fallback;
  return fallback;
}

std::optional<bool> tristate(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

Role role_named(const std::string& name) {
  if (name == "parameter") return Role::parameter;
  if (name == "buffer") return Role::buffer;
  if (name == "gradient") return Role::gradient;
  if (name == "optimizer_state") return Role::optimizer_state;
  if (name == "input") return Role::input;
  return Role::none;
}

// The file counts from 1.
int32_t module_index(const Json& number, size_t modules) {
  const auto value = number.is_number_integer() ? number.get<int64_t>() : 0;
  return value >= 1 && value <= static_cast<int64_t>(modules) ? static_cast<int32_t>(value - 1) : -1;
}

TensorTable table_from(const Json& json, size_t modules) {
  TensorTable table;
  table.when = value_or<std::string>(json, "when", "");
  table.step = static_cast<int32_t>(value_or<int64_t>(json, "step", 0));
  const auto rows = json.find("rows");
  if (rows == json.end() || !rows->is_array()) return table;
  for (const Json& row : *rows) {
    if (!row.is_array() || row.size() < 4 || !row[0].is_string() || !row[1].is_string() || !row[2].is_number() || !row[3].is_number())
      continue;
    table.rows.push_back({role_named(row[0].get<std::string>()), row[1].get<std::string>(), row[2].get<uint64_t>(), row[3].get<int64_t>(),
                          row.size() > 7 ? module_index(row[7], modules) : -1});
  }
  return table;
}

// Rows that are no such thing keep their number.
std::vector<ModuleRow> modules_from(const Json& json) {
  std::vector<ModuleRow> modules;
  for (const Json& row : json) {
    ModuleRow module;
    if (row.is_array() && row.size() >= 3 && row[0].is_string() && row[1].is_string()) {
      module = {row[0].get<std::string>(), row[1].get<std::string>(), module_index(row[2], json.size())};
    }
    modules.push_back(std::move(module));
  }
  return modules;
}

OptimizerFacts optimizer_from(const Json& json) {
  OptimizerFacts facts;
  facts.name = value_or<std::string>(json, "name", "");
  const auto groups = json.find("param_groups");
  if (groups == json.end() || !groups->is_array() || groups->empty() || !groups->front().is_object()) return facts;
  const Json& group = groups->front();
  facts.options_known = true;
  facts.foreach = tristate(group, "foreach");
  facts.fused = tristate(group, "fused");
  facts.amsgrad = value_or(group, "amsgrad", false);
  facts.capturable = value_or(group, "capturable", false);
  facts.centered = value_or(group, "centered", false);
  facts.nesterov = value_or(group, "nesterov", false);
  facts.momentum = value_or(group, "momentum", 0.0);
  for (const Json& each : *groups) {
    if (each.is_object()) facts.weight_decay = std::max(facts.weight_decay, value_or(each, "weight_decay", 0.0));
  }
  return facts;
}

}  // namespace

ProfileMetadata read_metadata(const std::string& gpucast_json) {
  ProfileMetadata out;
  if (gpucast_json.empty()) return out;
  Json json = Json::parse(gpucast_json, nullptr, false);
  if (json.is_string()) json = Json::parse(json.get<std::string>(), nullptr, false);  // some releases quote it
  if (!json.is_object()) {
    out.readable = false;
    return out;
  }
  out.torch = value_or<std::string>(json, "torch", "");
  out.python = value_or<std::string>(json, "python", "");
  out.asked_device = value_or<std::string>(json, "asked_device", "");
  out.autocast = value_or<std::string>(json, "autocast", "");
  out.end_reason = value_or<std::string>(json, "end_reason", "");
  if (const auto batch = json.find("batch_size"); batch != json.end() && batch->is_number_integer()) out.batch_size = batch->get<int64_t>();
  if (const auto command = json.find("command"); command != json.end() && command->is_array()) {
    for (const Json& word : *command) {
      if (word.is_string()) out.command.push_back(word.get<std::string>());
    }
  }
  if (const auto list = json.find("optimizers"); list != json.end() && list->is_array()) {
    for (const Json& each : *list) {
      if (each.is_object()) out.optimizers.push_back(optimizer_from(each));
    }
  }
  if (const auto list = json.find("modules"); list != json.end() && list->is_array()) out.modules = modules_from(*list);
  if (const auto list = json.find("tables"); list != json.end() && list->is_array()) {
    for (const Json& each : *list) out.tables.push_back(each.is_object() ? table_from(each, out.modules.size()) : TensorTable());
  }
  return out;
}

SpanIndex ProfileFacts::computing_op(SpanIndex at) const {
  for (; at != kNoSpan; at = tree.parent[at]) {
    if (trace.spans[at].kind == SpanKind::op && !is_plumbing(name(at))) return at;
  }
  return kNoSpan;
}

bool ProfileFacts::is_kernel(SpanIndex op) const {
  // Autograd's nodes are named after C++ classes; what runs in one is other operators.
  return op != kNoSpan && !tree.has_operator_inside[op] && name(op).find("::") != std::string_view::npos && !is_autograd_node(name(op));
}

SpanIndex ProfileFacts::around(SpanIndex at, std::string_view wanted) const {
  while (at != kNoSpan && name(at) != wanted) at = tree.parent[at];
  return at;
}

SpanIndex ProfileFacts::node_around(SpanIndex at) const {
  while (at != kNoSpan && !is_node(at)) at = tree.parent[at];
  return at;
}

SpanIndex ProfileFacts::module_of(SpanIndex at) const {
  while (at != kNoSpan && trace.spans[at].kind != SpanKind::module) at = tree.parent[at];
  return at;
}

std::vector<uint32_t> ProfileFacts::born_between(int64_t from_ns, int64_t to_ns) const {
  const auto born_ns = [&](const ProfileBlock& block) { return trace.memory[block.alloc_event].time_ns; };
  // Those from before the trace come last.
  const auto first = std::partition_point(cpu.blocks.begin(), cpu.blocks.end(),
                                          [&](const ProfileBlock& block) { return !block.before_start() && born_ns(block) < from_ns; });
  std::vector<uint32_t> out;
  for (auto at = first; at != cpu.blocks.end() && !at->before_start() && born_ns(*at) <= to_ns; ++at) {
    out.push_back(static_cast<uint32_t>(at - cpu.blocks.begin()));
  }
  return out;
}

std::span<const SpanIndex> ProfileFacts::nodes_of(int64_t sequence_number) const {
  const auto found = nodes.find(sequence_number);
  if (found == nodes.end()) return {};
  return found->second;
}

const DimsList& ProfileFacts::parsed(StringId text) const {
  const auto [at, fresh] = dims_.try_emplace(text.value);
  if (fresh) at->second = parse_dims(trace.strings.text(text));
  return at->second;
}

const std::vector<std::string>& ProfileFacts::texts(StringId text) const {
  const auto [at, fresh] = texts_.try_emplace(text.value);
  if (fresh) at->second = parse_texts(trace.strings.text(text));
  return at->second;
}

ProfileFacts gather_facts(ProfileTrace trace, const Gpu& gpu) {
  ProfileFacts facts;
  facts.trace = std::move(trace);
  facts.gpu = gpu;
  facts.tree = build_span_tree(facts.trace);
  facts.cpu = pair_blocks(facts.trace.memory, 0);
  facts.phases = find_phases(facts.trace, facts.tree);
  facts.metadata = read_metadata(facts.trace.gpucast_json);
  for (SpanIndex i = 0; i < facts.trace.spans.size(); ++i) {
    if (facts.is_node(i)) facts.nodes[facts.span(i).sequence_number].push_back(i);
  }
  return facts;
}

Sequence traced_sequence(const ProfileFacts& facts) {
  Sequence out;
  out.traced = facts.cpu.blocks.size();
  out.blocks.reserve(out.traced + out.traced / 4);
  int64_t before = 0;
  for (const ProfileBlock& block : facts.cpu.blocks) {
    GpuBlock gpu;
    gpu.size_bytes = block.size_bytes;
    if (block.before_start()) {
      gpu.alloc = {kBeforeAll.time_ns, before++};
    } else {
      gpu.alloc = facts.of_event(block.alloc_event);
      gpu.span = facts.tree.of_memory[block.alloc_event];
    }
    if (block.free_event != ProfileBlock::kNever) gpu.free = facts.of_event(block.free_event);
    out.blocks.push_back(gpu);
  }
  return out;
}

std::vector<uint32_t> kept_between(const ProfileFacts& facts, const Sequence& sequence, int64_t from_ns, int64_t to_ns) {
  std::vector<uint32_t> out = facts.born_between(from_ns, to_ns);
  std::erase_if(out, [&](uint32_t i) { return !sequence.blocks[i].kept(); });
  return out;
}

int64_t numel(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= std::max<int64_t>(dim, 0);
  return n;
}

int64_t element_bytes(std::string_view type) {
  if (type == "float" || type == "int" || type == "c10::complex<c10::Half>") return 4;
  if (type == "double" || type == "long int" || type == "long" || type == "c10::complex<float>") return 8;
  if (type == "c10::Half" || type == "c10::BFloat16" || type == "short" || type == "short int") return 2;
  if (type == "bool" || type == "unsigned char" || type == "signed char") return 1;
  if (type == "c10::complex<double>") return 16;
  return 0;
}

}  // namespace gpucast

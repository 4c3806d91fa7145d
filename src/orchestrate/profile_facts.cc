#include "src/orchestrate/profile_facts.h"

#include <algorithm>
#include <utility>

#include "src/base/command_words.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

std::optional<bool> tristate(const Json& object, const char* key) {
  const Json& found = object[key];
  return found.is_boolean() ? std::optional(found.get<bool>()) : std::nullopt;
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
  const auto value = number.is_integer() ? number.get<int64_t>() : 0;
  return value >= 1 && value <= static_cast<int64_t>(modules) ? static_cast<int32_t>(value - 1) : -1;
}

TensorTable table_from(const Json& json, size_t modules) {
  TensorTable table;
  table.when = json.value("when", "");
  table.step = static_cast<int32_t>(json.value("step", 0));
  for (const Json& row : json["rows"]) {
    if (!row.is_array() || row.size() < 4 || !row.at(0).is_text() || !row.at(1).is_text() || !row.at(2).is_number() ||
        !row.at(3).is_number())
      continue;
    table.rows.push_back({role_named(row.at(0).get<std::string>()), row.at(1).get<std::string>(), row.at(2).get<uint64_t>(),
                          row.at(3).get<int64_t>(), row.size() > 7 ? module_index(row.at(7), modules) : -1});
  }
  return table;
}

// An invalid row stays in the list, so that the others keep their numbers.
std::vector<ModuleRow> modules_from(const Json& json) {
  std::vector<ModuleRow> modules;
  for (const Json& row : json) {
    ModuleRow module;
    if (row.is_array() && row.size() >= 3 && row.at(0).is_text() && row.at(1).is_text()) {
      module = {row.at(0).get<std::string>(), row.at(1).get<std::string>(), module_index(row.at(2), json.size())};
    }
    modules.push_back(std::move(module));
  }
  return modules;
}

OptimizerFacts optimizer_from(const Json& json) {
  OptimizerFacts facts;
  facts.name = json.value("name", "");
  const Json& groups = json["param_groups"];
  if (!groups.is_array() || groups.empty() || !groups.at(0).is_object()) return facts;
  const Json& group = groups.at(0);
  facts.options_known = true;
  facts.foreach = tristate(group, "foreach");
  facts.fused = tristate(group, "fused");
  facts.amsgrad = group.value("amsgrad", false);
  facts.capturable = group.value("capturable", false);
  facts.centered = group.value("centered", false);
  facts.nesterov = group.value("nesterov", false);
  facts.momentum = group.value("momentum", 0.0);
  for (const Json& each : groups) {
    if (each.is_object()) facts.weight_decay = std::max(facts.weight_decay, each.value("weight_decay", 0.0));
  }
  return facts;
}

}  // namespace

ProfileMetadata read_metadata(const std::string& gpucast_json) {
  ProfileMetadata out;
  if (gpucast_json.empty()) return out;
  Json json = Json::parse(gpucast_json);
  if (json.is_text()) json = Json::parse(json.get<std::string>());  // some releases write it as a quoted string
  if (!json.is_object()) {
    out.readable = false;
    return out;
  }
  out.torch = json.value("torch", "");
  out.python = json.value("python", "");
  out.asked_device = json.value("asked_device", "");
  out.autocast = json.value("autocast", "");
  out.end_reason = json.value("end_reason", "");
  if (const Json& batch = json["batch_size"]; batch.is_integer()) out.batch_size = batch.get<int64_t>();
  for (const Json& word : json["command"]) {
    if (auto exact = word_from_json(word)) out.command.push_back(std::move(*exact));
  }
  for (const Json& each : json["optimizers"]) {
    if (each.is_object()) out.optimizers.push_back(optimizer_from(each));
  }
  out.modules = modules_from(json["modules"]);
  for (const Json& each : json["tables"]) out.tables.push_back(each.is_object() ? table_from(each, out.modules.size()) : TensorTable());
  return out;
}

SpanIndex ProfileFacts::computing_op(SpanIndex at) const {
  for (; at != kNoSpan; at = tree.parent[at]) {
    if (trace.spans[at].kind == SpanKind::op && !is_plumbing(name(at))) return at;
  }
  return kNoSpan;
}

bool ProfileFacts::is_kernel(SpanIndex op) const {
  // The names of autograd's nodes are C++ classes. Operators inside a node are other operators.
  return op != kNoSpan && !tree.has_operator_inside[op] && name(op).find("::") != std::string_view::npos && !is_autograd_node(name(op));
}

SpanIndex ProfileFacts::named_span_around(SpanIndex at, std::string_view wanted) const {
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
  // Blocks from before the trace are last in the list.
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

// A profiler trace with all facts derived from it, and short queries for the rules.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/profile.h"
#include "src/attribution/profile_phases.h"
#include "src/attribution/span_tree.h"
#include "src/lifetime/profile_blocks.h"
#include "src/orchestrate/sequence.h"

namespace gpucast {

// The data that `gpucast profile` adds to the trace (docs/reference/profile-traces.md).
struct TensorRow {
  Role role = Role::none;
  std::string name;
  uint64_t address = 0;
  int64_t storage_bytes = 0;
  int32_t module = -1;  // index of ProfileMetadata::modules: the owner of the parameter; -1: none
};
struct ModuleRow {
  std::string name, type;  // its path in its root, its class
  int32_t parent = -1;     // index of ProfileMetadata::modules; -1: a root
};
struct TensorTable {
  std::string when;  // forward, backward, step
  int32_t step = 0;
  std::vector<TensorRow> rows;
};
struct OptimizerFacts {
  std::string name;  // "Adam"
  std::optional<bool> foreach, fused;
  bool amsgrad = false, capturable = false, centered = false, nesterov = false;
  double momentum = 0, weight_decay = 0;
  bool options_known = false;  // false: the trace has the name only
};
struct ProfileMetadata {
  std::string torch, python, asked_device, autocast, end_reason;
  std::vector<std::string> command;
  std::optional<int64_t> batch_size;
  std::vector<OptimizerFacts> optimizers;
  std::vector<ModuleRow> modules;
  std::vector<TensorTable> tables;
  bool readable = true;  // false: the trace has metadata in an unexpected form
};
ProfileMetadata read_metadata(const std::string& gpucast_json);

struct ProfileFacts {
  ProfileTrace trace;
  SpanTree tree;
  ProfileBlocks cpu;
  ProfilePhases phases;
  ProfileMetadata metadata;
  std::unordered_map<int64_t, std::vector<SpanIndex>> nodes;  // autograd's nodes, by sequence number
  Gpu gpu;

  std::string_view name(SpanIndex span) const { return span == kNoSpan ? std::string_view() : trace.strings.text(trace.spans[span].name); }
  const ProfileSpan& span(SpanIndex index) const { return trace.spans[index]; }
  bool is_op(SpanIndex span) const { return span != kNoSpan && trace.spans[span].kind == SpanKind::op; }
  bool is_node(SpanIndex span) const { return is_op(span) && is_autograd_node(name(span)); }

  // The innermost computing operator around a span (or the span itself); kNoSpan: none. Autograd's nodes count as computing.
  SpanIndex computing_op(SpanIndex span) const;
  // Whether the operator runs no other computing operator, so that it is a kernel.
  bool is_kernel(SpanIndex op) const;
  // The nearest span around this one (or the span itself) with that name, and the nearest autograd node.
  SpanIndex named_span_around(SpanIndex span, std::string_view name) const;
  SpanIndex node_around(SpanIndex span) const;
  SpanIndex module_of(SpanIndex span) const;  // the nearest module
  // The autograd nodes with a sequence number, in the order they ran.
  std::span<const SpanIndex> nodes_of(int64_t sequence_number) const;

  const DimsList& dims(SpanIndex op) const { return parsed(trace.spans[op].dims); }  // of its inputs
  const DimsList& strides(SpanIndex op) const { return parsed(trace.spans[op].strides); }
  const std::vector<std::string>& types(SpanIndex op) const { return texts(trace.spans[op].types); }
  const std::vector<std::string>& concrete(SpanIndex op) const { return texts(trace.spans[op].concrete); }

  // Blocks of the trace (cpu.blocks) allocated in [from_ns, to_ns], in order. Time: O(log n) plus the number of blocks found.
  std::vector<uint32_t> born_between(int64_t from_ns, int64_t to_ns) const;

  Moment begin_of(SpanIndex span) const { return {trace.spans[span].begin_ns, -1}; }
  Moment end_of(SpanIndex span) const { return {trace.spans[span].end_ns, INT64_MAX - 1}; }
  // The moment of a [memory] event, by its index.
  Moment of_event(uint32_t event) const { return {trace.memory[event].time_ns, int64_t{event} << 16}; }

 private:
  const DimsList& parsed(StringId text) const;
  const std::vector<std::string>& texts(StringId text) const;
  mutable std::unordered_map<int32_t, DimsList> dims_;
  mutable std::unordered_map<int32_t, std::vector<std::string>> texts_;
};

ProfileFacts gather_facts(ProfileTrace trace, const Gpu& gpu);

// The trace's blocks, unchanged.
Sequence traced_sequence(const ProfileFacts& facts);

// born_between without the dropped blocks.
std::vector<uint32_t> kept_between(const ProfileFacts& facts, const Sequence& sequence, int64_t from_ns, int64_t to_ns);

int64_t numel(const std::vector<int64_t>& dims);
int64_t element_bytes(std::string_view type);  // "float" -> 4; 0: unknown

}  // namespace gpucast

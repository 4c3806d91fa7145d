#include "src/trace/capture_events.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/json.h"
#include "src/trace/read_arguments.h"

namespace gpucast::capture {
namespace {

MarkKind mark_kind(std::string_view name) {
  static constexpr std::pair<std::string_view, MarkKind> kNames[] = {{"phase_begin", MarkKind::phase_begin},
                                                                     {"phase_end", MarkKind::phase_end},
                                                                     {"module_begin", MarkKind::module_begin},
                                                                     {"module_end", MarkKind::module_end},
                                                                     {"module_backward", MarkKind::module_backward},
                                                                     {"step", MarkKind::step},
                                                                     {"tensors", MarkKind::tensors},
                                                                     {"exception", MarkKind::exception},
                                                                     {"stats_reset", MarkKind::stats_reset},
                                                                     {"capture_begin", MarkKind::capture_begin},
                                                                     {"pool_begin", MarkKind::pool_begin},
                                                                     {"pool_end", MarkKind::pool_end},
                                                                     {"pool_release", MarkKind::pool_release}};
  for (const auto& [text, kind] : kNames) {
    if (text == name) return kind;
  }
  return MarkKind::other;
}

MarkedPhase marked_phase(std::string_view name) {
  static constexpr std::pair<std::string_view, MarkedPhase> kNames[] = {
      {"model_to_device", MarkedPhase::model_to_device}, {"forward", MarkedPhase::forward},
      {"evaluation", MarkedPhase::evaluation},           {"backward", MarkedPhase::backward},
      {"optimizer_step", MarkedPhase::optimizer_step},   {"zero_grad", MarkedPhase::zero_grad}};
  for (const auto& [text, phase] : kNames) {
    if (text == name) return phase;
  }
  return MarkedPhase::unknown;
}

TensorKind tensor_kind(std::string_view name) {
  static constexpr std::pair<std::string_view, TensorKind> kNames[] = {
      {"parameter", TensorKind::parameter}, {"parameter_copy", TensorKind::parameter_copy},   {"buffer", TensorKind::buffer},
      {"gradient", TensorKind::gradient},   {"optimizer_state", TensorKind::optimizer_state}, {"input", TensorKind::input}};
  for (const auto& [text, kind] : kNames) {
    if (text == name) return kind;
  }
  return TensorKind::unknown;
}

}  // namespace

const char* read_allocator_event(Reading& reading, EventKind kind, Elements& elements) {
  AllocatorEvent event;
  event.kind = kind;
  int64_t stack = -1;
  bool ok = elements.address(&event.address) && elements.size(&event.size_bytes) && elements.address(&event.stream);
  ok = ok && event.size_bytes <= kMostBytes && (kind != EventKind::oom || event.address <= static_cast<uint64_t>(kMostBytes)) &&
       event.address <= UINT64_MAX - static_cast<uint64_t>(event.size_bytes);
  if (!ok) return "an allocator event";
  // An event without a stack or time is still useful.
  if (elements.integer(&stack) && stack >= 0 && stack < INT32_MAX) event.stack = StackId(stack);
  (void)elements.integer(&event.time_us);
  reading.trace.events.push_back(event);
  return nullptr;
}

const char* read_mark(Reading& reading, Elements& elements) {
  Mark mark;
  std::string_view kind;
  if (!elements.integer(&mark.sequence) || !elements.size(&mark.allocs) || !elements.size(&mark.frees) ||
      !elements.integer(&mark.time_us) || !elements.text(&kind)) {
    return "a mark";
  }
  if (mark.time_us < 0 || mark.time_us > kLastNs / 1000) mark.time_us = 0;
  mark.kind = mark_kind(kind);
  bool ok = true;
  switch (mark.kind) {
    case MarkKind::phase_begin:
    case MarkKind::phase_end: {
      std::string_view name;
      ok = elements.text(&name);
      mark.phase = marked_phase(name);
      break;
    }
    case MarkKind::module_begin:
    case MarkKind::module_end:
    case MarkKind::module_backward: {
      int64_t id = -1;
      ok = elements.integer(&id) && id < INT32_MAX;
      if (ok) mark.module = ModuleId(id);
      std::string_view node;
      if (mark.kind == MarkKind::module_backward && elements.text(&node)) mark.text = reading.trace.strings.intern(node);
      break;
    }
    case MarkKind::step:
      ok = elements.integer(&mark.step);
      if (ok && (!elements.size(&mark.cpu_us) || mark.cpu_us > kLastNs / 1000)) mark.cpu_us = 0;
      break;
    case MarkKind::capture_begin:
    case MarkKind::pool_begin:
    case MarkKind::pool_end:
    case MarkKind::pool_release: {
      int64_t pool = 0;
      ok = elements.integer(&pool) && pool > 0 && pool <= UINT32_MAX;
      mark.pool = static_cast<uint32_t>(ok ? pool : 0);
      break;
    }
    case MarkKind::exception: {
      std::string_view what;
      if (elements.text(&what)) mark.text = reading.trace.strings.intern(what);
      break;
    }
    case MarkKind::tensors:
    case MarkKind::stats_reset:
    case MarkKind::other:
      break;
  }
  if (!ok) return "a mark's value";
  reading.trace.marks.push_back(mark);
  return nullptr;
}

const char* read_tensor(Reading& reading, Elements& elements) {
  TensorMark tensor;
  std::string_view kind, name;
  if (!elements.integer(&tensor.sequence) || !elements.text(&kind)) return "a tensor";
  tensor.kind = tensor_kind(kind);
  if (!elements.address(&tensor.address)) return "a tensor's address";
  int64_t module = -1;
  if (elements.size(&tensor.storage_bytes) && elements.text(&name)) {
    tensor.name = reading.trace.strings.intern(name);
    if (elements.integer(&module) && module >= 0 && module < INT32_MAX) tensor.module = ModuleId(module);
    std::string_view dtype;
    if (tensor.kind == TensorKind::input && elements.text(&dtype)) {
      tensor.dtype = reading.trace.strings.intern(dtype);
      tensor.shape = integers_of(elements.next());
    }
  }
  reading.trace.tensors.push_back(std::move(tensor));
  return nullptr;
}

const char* read_operator_kind(Reading& reading, Elements& elements) {
  int64_t id = 0;
  std::string_view name, inputs;
  // A new kind gets the next number.
  if (!elements.integer(&id) || id != static_cast<int64_t>(reading.trace.observed.kinds.size()) || !elements.text(&name))
    return "'operator_kind'";
  const StringId name_id = reading.trace.strings.intern(name);
  od::array list;
  if (elements.next().get_array().get(list) != simdjson::SUCCESS || list.raw_json().get(inputs) != simdjson::SUCCESS)
    return "'operator_kind'";
  const Json arguments = Json::parse(inputs);
  reading.trace.observed.kinds.push_back({name_id, operator_arguments(arguments)});
  return arguments.is_array() ? nullptr : "'operator_kind'";
}

const char* read_operator_call(Reading& reading, Elements& elements) {
  OperatorCall call;
  int64_t kind = 0;
  const bool ok = elements.integer(&kind) && kind >= 0 && kind < static_cast<int64_t>(reading.trace.observed.kinds.size()) &&
                  elements.integer(&call.thread) && elements.size(&call.start_ns) && elements.size(&call.duration_ns) &&
                  call.start_ns < kMostNs && call.duration_ns < kMostNs &&
                  (reading.trace.observed.operators.empty() || reading.trace.observed.operators.back().start_ns <= call.start_ns);
  if (!ok) return "'operator'";
  call.kind = static_cast<uint32_t>(kind);
  reading.trace.observed.operators.push_back(call);
  return nullptr;
}

}  // namespace gpucast::capture

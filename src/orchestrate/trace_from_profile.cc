#include "src/orchestrate/trace_from_profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "gpucast/error.h"
#include "gpucast/history.h"
#include "gpucast/replay.h"
#include "src/base/bytes.h"
#include "src/orchestrate/roles.h"
#include "src/trace/convolutions.h"

namespace gpucast {
namespace {

constexpr int kCuda = 1;  // c10/core/DeviceType.h

const char* fate_name(Fate fate) {
  static constexpr const char* kNames[] = {
      "kept", "host", "kernel_scratch", "other_kernel", "optimizer_loop", "outside_operators", "before_trace", "not_modelled"};
  static_assert(std::size(kNames) == static_cast<size_t>(Fate::count_));
  return kNames[static_cast<size_t>(fate)];
}

int64_t events_of(const ProfileTrace& profile, int device_type) {
  return std::count_if(profile.memory.begin(), profile.memory.end(),
                       [&](const ProfileMemory& event) { return event.device_type == device_type; });
}

// ---- Requirements on the trace --------------------------------------------------------------------------------------------

void check(const ProfileTrace& profile) {
  if (profile.memory.empty()) {
    throw Error(
        "the trace has no [memory] events, so it does not show any allocation", profile.path,
        "profile again with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True), or let `gpucast profile "
        "-- python train.py` do it");
  }
  if (std::all_of(profile.memory.begin(), profile.memory.end(), [](const ProfileMemory& event) { return event.address == 0; })) {
    throw Error("the [memory] events have no addresses, so frees cannot be assigned to allocations", profile.path,
                "profile with a newer PyTorch: releases of 2021 did not write them");
  }
}

void warn(Trace* trace, const char* code, std::string message) { trace->warnings.push_back({code, std::move(message)}); }

void add_warnings(const ProfileFacts& facts, bool recorded, Trace* out) {
  const ProfileTrace& profile = facts.trace;
  const auto problem = [&](ProfileProblem kind, const char* code, const char* what) {
    const ProblemCount& count = profile.problems[kind];
    if (count.count > 0) warn(out, code, fmt::format("{}: {} (first: {}).", what, count.count, count.first));
  };
  problem(ProfileProblem::truncated_file, "truncated_file", "The trace ends in the middle; it was read as far as it goes");
  problem(ProfileProblem::bad_event, "bad_events", "Events that are not JSON were skipped");
  problem(ProfileProblem::incomplete_event, "incomplete_events", "Events without a field that is needed were skipped");
  if (recorded) {
    int64_t allocated_bytes = 0, reserved_bytes = 0;
    for (const ProfileMemory& event : profile.memory) {
      if (event.device_type != kCuda) continue;
      allocated_bytes = std::max(allocated_bytes, event.total_allocated_bytes);
      reserved_bytes = std::max(reserved_bytes, event.total_reserved_bytes);
    }
    warn(out, "cuda_trace",
         fmt::format("The trace is of a run on a GPU: its allocations on the device are used unchanged, and no rule is applied. Its own "
                     "counters reached {} allocated and {} reserved.",
                     format_bytes(allocated_bytes), format_bytes(reserved_bytes)));
    return;
  }
  std::map<int64_t, int64_t> pids;
  for (const ProfileThread& thread : profile.threads) ++pids[thread.pid];
  if (pids.size() > 1) {
    warn(out, "several_processes",
         fmt::format("The trace has {} processes; the allocations of all of them are added up. Give the trace of one process.",
                     pids.size()));
  }
  const bool operators =
      std::any_of(profile.spans.begin(), profile.spans.end(), [](const ProfileSpan& span) { return span.kind == SpanKind::op; });
  if (!operators) {
    warn(out, "no_operators",
         "The trace has no operators, so allocations cannot be classified: each one counts. Profile with "
         "activities=[ProfilerActivity.CPU].");
  } else if (std::none_of(profile.spans.begin(), profile.spans.end(), [](const ProfileSpan& span) { return span.dims.valid(); })) {
    warn(out, "no_shapes", "The trace has no shapes of inputs, which several rules need. Profile with record_shapes=True.");
  }
  if (operators && !facts.phases.modules && !facts.phases.gpucast_marks) {
    warn(out, "no_modules",
         "The trace does not name modules, so the time between other phases counts as forward. Profile with with_stack=True.");
  }
  if (facts.phases.backwards.empty() && operators) {
    warn(out, "no_backward", "The trace has no backward, so it does not show a training step.");
  } else if (facts.phases.optimizer_steps.empty() && operators) {
    warn(out, "no_optimizer_step",
         "The trace has no optimizer step, so the optimizer's state is missing. Profile at least two whole iterations.");
  } else if (facts.phases.steps == 1) {
    warn(out, "one_iteration",
         "The trace has one optimizer step. The peak is often reached in the second, when the optimizer's state is there: profile three.");
  }
  if (out->process.torch.empty()) {
    warn(out, "no_torch_release",
         "The trace does not say which PyTorch made it; the newest release's allocator is simulated. Give it with --torch-version.");
  }
  if (!facts.metadata.readable)
    warn(out, "bad_metadata", "The metadata that `gpucast profile` added to the trace could not be read and is ignored.");
}

void warn_of_batch(const ProfileFacts& facts, const OrchestrateOptions& options, Trace* out) {
  const std::optional<int64_t> traced = traced_batch_size(facts, options);
  if (!traced) {
    warn(out, "no_batch_size", "The trace does not say its batch size, so --batch changes nothing. Give it with --traced-batch.");
  } else if (*traced != *options.batch_size) {
    warn(out, "batch_rescaled",
         fmt::format("Predicted for batch {} from a trace of batch {}: each block grows in proportion or not at all.", *options.batch_size,
                     *traced));
  }
}

// "2.6.0+cu124" -> "12.4"; "" for a build for the CPU.
std::string cuda_of_wheel(const std::string& torch) {
  const size_t at = torch.find("+cu");
  if (at == std::string::npos || torch.size() < at + 6) return "";
  const std::string digits = torch.substr(at + 3);
  return digits.substr(0, digits.size() - 1) + "." + digits.back();
}

// ---- sequence -> requests -> events ---------------------------------------------------------------------------------------

struct TimedItem {
  enum class Kind : uint8_t { free, alloc, mark } kind = Kind::alloc;
  Moment when;
  uint32_t index = 0;  // of the block or of the mark
};

// The modules from the table of `gpucast profile`, in the form of a capture. A call without a mark that names its module gets the
// profiler's names: "ResNet_0", "ResNet_0.Sequential_1".
class Modules {
 public:
  Modules(const ProfileFacts& facts, Trace* out) : facts_(facts), out_(*out), of_span_(facts.trace.spans.size()) {
    for (const ModuleRow& row : facts.metadata.modules) {
      out->modules.push_back({ModuleId(row.parent), out->strings.intern(row.name), out->strings.intern(row.type)});
    }
    for (SpanIndex i = 0; i < of_span_.size(); ++i) read_mark(i);
  }

  // The innermost module around a span.
  ModuleId module_around(SpanIndex span) {
    span = facts_.module_of(span);
    if (span == kNoSpan) return {};
    if (of_span_[span].valid()) return of_span_[span];
    const ModuleId parent = module_around(facts_.tree.parent[span]);
    const StringId name = facts_.span(span).name;
    const auto [found, fresh] = ids_.try_emplace({parent.value, name.value}, ModuleId(static_cast<int64_t>(out_.modules.size())));
    if (fresh) {
      const std::string_view text = facts_.trace.strings.text(name);
      Module module;
      module.parent = parent;
      // The name of the outermost module is not part of the names below it, as in PyTorch.
      const bool below_root = parent.valid() && out_.modules[parent.index()].parent.valid();
      const std::string prefix = below_root ? std::string(out_.strings.text(out_.modules[parent.index()].name)) + "." : "";
      module.name = out_.strings.intern(prefix + std::string(text));
      module.type = out_.strings.intern(class_of(text));
      out_.modules.push_back(module);
    }
    return of_span_[span] = found->second;
  }

 private:
  static std::string_view class_of(std::string_view profilers_name) { return profilers_name.substr(0, profilers_name.rfind('_')); }

  // The mark "gpucast.module#3" lies inside the call of table row 3. If the class differs, it marks a call without a frame of the profiler.
  void read_mark(SpanIndex mark) {
    constexpr std::string_view kMark = "gpucast.module#";
    const std::string_view name = facts_.name(mark);
    if (facts_.span(mark).kind != SpanKind::annotation || !name.starts_with(kMark)) return;
    size_t number = 0;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data() + kMark.size(), end, number).ec != std::errc() || number - 1 >= facts_.metadata.modules.size()) return;
    const SpanIndex call = facts_.module_of(mark);
    if (call == kNoSpan || of_span_[call].valid() || class_of(facts_.name(call)) != facts_.metadata.modules[number - 1].type) return;
    of_span_[call] = ModuleId(static_cast<int64_t>(number - 1));
  }

  const ProfileFacts& facts_;
  Trace& out_;
  std::vector<ModuleId> of_span_;
  std::map<std::pair<int32_t, int32_t>, ModuleId> ids_;
};

// The frames around a span, innermost first: operators by name, Python functions with file and line.
class Stacks {
 public:
  Stacks(const ProfileFacts& facts, Trace* out) : facts_(facts), out_(*out), of_span_(facts.trace.spans.size()) {}

  StackId stack_of(SpanIndex span) {
    if (span == kNoSpan) return {};
    if (of_span_[span].valid()) return of_span_[span];
    Stack stack;
    stack.first_frame = static_cast<uint32_t>(out_.stack_frames.size());
    for (SpanIndex up = span; up != kNoSpan && stack.frame_count < kMostFrames; up = facts_.tree.parent[up]) {
      if (facts_.span(up).kind == SpanKind::module) continue;
      out_.stack_frames.push_back(frame(facts_.span(up)));
      ++stack.frame_count;
    }
    of_span_[span] = StackId(static_cast<int64_t>(out_.stacks.size()));
    out_.stacks.push_back(stack);
    return of_span_[span];
  }

 private:
  static constexpr uint32_t kMostFrames = 48;

  FrameId frame(const ProfileSpan& span) {
    const auto [at, fresh] = frames_.try_emplace(span.name.value, FrameId(static_cast<int64_t>(out_.frames.size())));
    if (fresh) out_.frames.push_back(parse(facts_.trace.strings.text(span.name), span.kind == SpanKind::function));
    return at->second;
  }

  // "torch/nn/functional.py(1712): relu"
  Frame parse(std::string_view name, bool function) {
    Frame out;
    const size_t close = function ? name.find("): ") : std::string_view::npos;
    const size_t open = close == std::string_view::npos ? close : name.rfind('(', close);
    if (open == std::string_view::npos) {
      out.file = out_.strings.intern("??");
      out.function = out_.strings.intern(name);
      return out;
    }
    out.file = out_.strings.intern(name.substr(0, open));
    std::from_chars(name.data() + open + 1, name.data() + close, out.line);
    out.function = out_.strings.intern(name.substr(close + 3));
    return out;
  }

  const ProfileFacts& facts_;
  Trace& out_;
  std::vector<StackId> of_span_;
  std::unordered_map<int32_t, FrameId> frames_;
};

struct ProfileMark {
  Moment when;
  Mark mark;
};

MarkedPhase marked(Phase phase) {
  switch (phase) {
    case Phase::model_to_device:
      return MarkedPhase::model_to_device;
    case Phase::forward:
      return MarkedPhase::forward;
    case Phase::evaluation:
      return MarkedPhase::evaluation;
    case Phase::backward:
      return MarkedPhase::backward;
    case Phase::optimizer_step:
      return MarkedPhase::optimizer_step;
    case Phase::zero_grad:
      return MarkedPhase::zero_grad;
    default:
      return MarkedPhase::unknown;
  }
}

// The module around a span. The search ends at the autograd node that runs the span: forward may be recomputed inside a node.
SpanIndex module_within_node(const ProfileFacts& facts, SpanIndex span) {
  while (span != kNoSpan && facts.span(span).kind != SpanKind::module && !facts.is_node(span)) span = facts.tree.parent[span];
  return span != kNoSpan && facts.is_node(span) ? kNoSpan : span;
}

// Marks for phases, modules and steps, as the capture layer would have made them.
class Marks {
 public:
  Marks(const ProfileFacts& facts, Modules* modules, StringTable* strings) : facts_(facts), modules_(*modules), strings_(*strings) {}

  std::vector<ProfileMark> make() {
    for (const PhaseWindow& window : facts_.phases.windows) mark_phase(window);
    for (SpanIndex i = 0; i < facts_.trace.spans.size(); ++i) {
      const ProfileSpan& span = facts_.span(i);
      if (span.kind == SpanKind::module) {
        mark_module_call(i);
      } else if (facts_.is_node(i)) {
        mark_backward(i);
      } else if (span.kind == SpanKind::op && span.sequence_number >= 0) {
        // Sequence numbers of operators inside a node mean nothing, except for operators of a recomputed forward.
        if (facts_.node_around(i) == kNoSpan || module_within_node(facts_, i) != kNoSpan)
          module_of_number_[span.sequence_number] = modules_.module_around(i);
      }
    }
    std::stable_sort(out_.begin(), out_.end(), [](const ProfileMark& a, const ProfileMark& b) { return a.when < b.when; });
    return std::move(out_);
  }

 private:
  // The order of marks at the same nanosecond: a phase encloses its modules, and an outer module encloses inner ones.
  static constexpr int64_t kFirst = INT64_MIN / 2, kLast = INT64_MAX - 4;
  static int64_t begin_order(SpanIndex i) { return kFirst + 1 + 2 * static_cast<int64_t>(i); }
  static int64_t end_order(SpanIndex i) { return kLast - 1 - 2 * static_cast<int64_t>(i); }

  Mark& add(Moment when, MarkKind kind) {
    out_.push_back({when, {}});
    out_.back().mark.kind = kind;
    return out_.back().mark;
  }

  void mark_phase(const PhaseWindow& window) {
    const MarkedPhase phase = marked(window.phase);
    if (phase == MarkedPhase::unknown) return;
    add({window.begin_ns, kFirst}, MarkKind::phase_begin).phase = phase;
    if (window.phase == Phase::optimizer_step) add({window.end_ns, kLast}, MarkKind::step).step = window.step;
    add({window.end_ns, kLast + 1}, MarkKind::phase_end).phase = phase;
    // The mark of a forward lies inside the module call that it belongs to.
    const SpanIndex outermost = facts_.module_of(window.span);
    if (window.phase == Phase::forward && outermost != kNoSpan) forward_of_.try_emplace(outermost, &window);
  }

  void mark_module_call(SpanIndex i) {
    const ProfileSpan& span = facts_.span(i);
    const PhaseWindow* window = facts_.phases.window_at(span.begin_ns);
    const auto forward = forward_of_.find(i);
    if (window == nullptr && forward != forward_of_.end()) window = forward->second;
    if (window == nullptr || (window->phase != Phase::forward && window->phase != Phase::backward)) return;
    const int64_t begin_ns = std::max(span.begin_ns, window->begin_ns), end_ns = std::min(span.end_ns, window->end_ns);
    const SpanIndex around = facts_.tree.parent[i];
    const bool recomputed = window->phase == Phase::backward && (around == kNoSpan || module_within_node(facts_, around) == kNoSpan);
    const ModuleId module = modules_.module_around(i);
    if (recomputed) add({begin_ns, begin_order(i)}, MarkKind::phase_begin).phase = MarkedPhase::forward;
    add({begin_ns, begin_order(i) + 1}, MarkKind::module_begin).module = module;
    add({end_ns, end_order(i) - 1}, MarkKind::module_end).module = module;
    if (recomputed) add({end_ns, end_order(i)}, MarkKind::phase_end).phase = MarkedPhase::forward;
  }

  // A node's number gives the module's forward that made it. A node without its own operator belongs to the operator before it.
  void mark_backward(SpanIndex i) {
    const ProfileSpan& span = facts_.span(i);
    const std::string_view name = facts_.name(i).substr(kAutogradNode.size());
    const PhaseWindow* window = facts_.phases.window_at(span.begin_ns);
    // AccumulateGrad stores the result of the node before it, and belongs to it.
    if (window == nullptr || window->phase != Phase::backward || name.ends_with("AccumulateGrad")) return;
    const auto behind = module_of_number_.upper_bound(span.sequence_number);
    Mark& mark = add({span.begin_ns, begin_order(i)}, MarkKind::module_backward);
    mark.module = behind == module_of_number_.begin() ? ModuleId() : std::prev(behind)->second;
    mark.text = strings_.intern(name);
  }

  const ProfileFacts& facts_;
  Modules& modules_;
  StringTable& strings_;
  std::vector<ProfileMark> out_;
  std::unordered_map<SpanIndex, const PhaseWindow*> forward_of_;  // by the outermost call
  std::map<int64_t, ModuleId> module_of_number_;                  // an operator's sequence number -> the module it last ran in
};

TensorKind tensor_kind(Role role) {
  switch (role) {
    case Role::parameter:
      return TensorKind::parameter;
    case Role::buffer:
      return TensorKind::buffer;
    case Role::gradient:
      return TensorKind::gradient;
    case Role::optimizer_state:
      return TensorKind::optimizer_state;
    case Role::input:
      return TensorKind::input;
    case Role::workspace:
    case Role::none:
      break;
  }
  return TensorKind::unknown;
}

// Runs the requests through the simulated allocator and records its actions, with the marks at their positions.
void simulate(const ProfileFacts& facts, const Sequence& sequence, Trace* out) {
  Modules modules(facts, out);
  Stacks stacks(facts, out);
  const std::vector<ProfileMark> marks = Marks(facts, &modules, &out->strings).make();
  std::vector<TimedItem> items;
  for (uint32_t i = 0; i < sequence.blocks.size(); ++i) {
    const GpuBlock& block = sequence.blocks[i];
    if (!block.kept() || block.size_bytes <= 0 || block.free <= block.alloc) continue;
    items.push_back({TimedItem::Kind::alloc, block.alloc, i});
    if (block.free != kNeverFreed) items.push_back({TimedItem::Kind::free, block.free, i});
  }
  for (uint32_t i = 0; i < marks.size(); ++i) items.push_back({TimedItem::Kind::mark, marks[i].when, i});
  std::stable_sort(items.begin(), items.end(), [](const TimedItem& a, const TimedItem& b) { return a.when < b.when; });

  History history;
  history.source = out->header.source;
  history.torch = out->process.torch;
  history.streams = {0};
  std::vector<uint32_t> id_of(sequence.blocks.size(), UINT32_MAX);
  std::vector<const TimedItem*> item_of_op;
  std::vector<uint32_t> marks_before;  // for each op: the number of marks before it
  uint32_t marks_seen = 0;
  for (const TimedItem& item : items) {
    if (item.kind == TimedItem::Kind::mark) {
      ++marks_seen;
      continue;
    }
    AllocOp op;
    op.kind = item.kind == TimedItem::Kind::alloc ? OpKind::alloc : OpKind::free;
    if (item.kind == TimedItem::Kind::alloc) id_of[item.index] = history.id_count++;
    op.id = id_of[item.index];
    op.size_bytes = sequence.blocks[item.index].size_bytes;
    history.ops.push_back(op);
    item_of_op.push_back(&item);
    marks_before.push_back(marks_seen);
  }

  int64_t allocs = 0, frees = 0, sequence_number = 0;
  uint32_t marks_done = 0;
  const auto emit_marks = [&](uint32_t until) {
    for (; marks_done < until; ++marks_done) {
      Mark mark = marks[marks_done].mark;
      mark.sequence = ++sequence_number;
      mark.allocs = allocs;
      mark.frees = frees;
      out->marks.push_back(mark);
    }
  };
  const auto emit_tensor = [&](const GpuBlock& block, uint64_t address) {
    Mark mark;
    mark.sequence = ++sequence_number;
    mark.allocs = allocs;
    mark.frees = frees;
    if (block.role == Role::workspace) {
      // The virtual GPU's log names the workspace; marks before and after align the log.
      mark.kind = MarkKind::other;
      out->marks.push_back(mark);
      out->vgpu_events.push_back({VgpuEventKind::mark, {}, {}, static_cast<uint64_t>(mark.sequence)});
      out->vgpu_events.push_back({VgpuEventKind::workspace, out->strings.intern("cublas"), {}, address, block.size_bytes});
      mark.sequence = ++sequence_number;
      out->marks.push_back(mark);
      out->vgpu_events.push_back({VgpuEventKind::mark, {}, {}, static_cast<uint64_t>(mark.sequence)});
      return;
    }
    mark.kind = MarkKind::tensors;
    out->marks.push_back(mark);
    TensorMark tensor;
    tensor.kind = tensor_kind(block.role);
    tensor.sequence = mark.sequence;
    tensor.address = address;
    tensor.storage_bytes = block.size_bytes;
    if (block.tensor != nullptr) {
      tensor.name = out->strings.intern(block.tensor->name);
      tensor.module = ModuleId(block.tensor->module);
    }
    out->tensors.push_back(tensor);
  };
  ReplaySettings settings;
  settings.device_total_bytes = out->header.gpu.total_memory_bytes;
  replay(history, settings, [&](const ReplayStep& step) {
    const auto at = static_cast<size_t>(step.op);
    emit_marks(marks_before[at]);
    const GpuBlock& block = sequence.blocks[item_of_op[at]->index];
    const StackId stack = stacks.stack_of(block.span);
    for (const AllocatorAction& action : step.actions) {
      AllocatorEvent event;
      event.kind = action.kind;
      event.stack = stack;
      event.address = action.address;
      event.size_bytes = action.size_bytes;
      event.time_us = std::max<int64_t>(item_of_op[at]->when.time_ns, 0) / 1000;
      out->events.push_back(event);
      allocs += action.kind == EventKind::alloc ? 1 : 0;
      frees += action.kind == EventKind::free_requested ? 1 : 0;
      if (action.kind == EventKind::alloc && block.role != Role::none) emit_tensor(block, action.address);
    }
  });
  emit_marks(static_cast<uint32_t>(marks.size()));
}

// For a trace of a GPU: adds the memory allocated before its first event, from the counter in that event, as one block. Its parts are not
// known.
void add_memory_before_trace(const ProfileFacts& facts, Sequence* sequence) {
  const auto first = std::find_if(facts.trace.memory.begin(), facts.trace.memory.end(),
                                  [](const ProfileMemory& event) { return event.device_type == kCuda; });
  int64_t bytes = first->total_allocated_bytes - first->bytes;
  for (const ProfileBlock& block : facts.cpu.blocks) bytes -= block.before_start() ? block.size_bytes : 0;
  if (bytes > 0) sequence->add(bytes, {kBeforeAll.time_ns, -1}, kNeverFreed, kNoSpan, "recorded");
}

ProfileSummary summarize(const ProfileFacts& facts, const Sequence& sequence, std::vector<ProfileRuleLine> rules,
                         const std::string& method) {
  ProfileSummary out;
  out.method = method;
  std::vector<ProfileBytesLine> fates(static_cast<size_t>(Fate::count_));
  for (size_t i = 0; i < fates.size(); ++i) fates[i].name = fate_name(static_cast<Fate>(i));
  for (size_t i = 0; i < sequence.blocks.size(); ++i) {
    const GpuBlock& block = sequence.blocks[i];
    if (i >= sequence.traced) {
      if (!block.kept()) continue;
      ++out.added_blocks;
      out.added_bytes += block.size_bytes;
      continue;
    }
    // The traced size: a rule may have changed the block's.
    const int64_t bytes = facts.cpu.blocks[i].size_bytes;
    ++out.blocks;
    out.bytes += bytes;
    ProfileBytesLine& line = fates[static_cast<size_t>(block.fate)];
    ++line.blocks;
    line.bytes += bytes;
  }
  out.fates = std::move(fates);
  out.rules = std::move(rules);
  return out;
}

// The convolutions that CUDA would pass to cuDNN. PyTorch's own kernels run depthwise ones in float32 unless channels come last.
Convolutions convolutions_of(const ProfileFacts& facts, bool float32) {
  Convolutions out;
  for (SpanIndex op = 0; op < static_cast<SpanIndex>(facts.trace.spans.size()); ++op) {
    if (!facts.is_op(op) || facts.name(op) != "aten::convolution") continue;
    const auto& dims = facts.dims(op).inputs;
    const auto& strides = facts.strides(op).inputs;
    const std::vector<std::string>& concrete = facts.concrete(op);
    const bool transposed = concrete.size() > 6 && concrete[6] == "True";
    std::vector<int64_t> x, w;  // empty: the convolution's shape is not known
    if (dims.size() > 1 && !transposed) {
      x = dims[0];
      w = dims[1];
    }
    Convolutions one;
    add_convolution(x, w, float32, &one);
    if (one.depthwise > 0) {
      const bool known = float32 && !strides.empty() && strides[0].size() > 1;
      if (known && strides[0][1] != 1) continue;
      if (!known) x.clear();
    }
    add_convolution(x, w, float32, &out);
  }
  return out;
}

}  // namespace

Trace trace_from_profile(ProfileTrace profile, const Gpu& gpu, const OrchestrateOptions& options) {
  check(profile);
  const bool recorded = events_of(profile, kCuda) > 0;
  Trace out;
  out.path = profile.path;
  ProfileFacts facts = gather_facts(std::move(profile), gpu);
  if (recorded) facts.cpu = pair_blocks(facts.trace.memory, kCuda);

  // Finds the maker and the role of each block. Now every block of the trace is in the sequence, with its role if it has one.
  Sequence sequence = traced_sequence(facts);
  assign_roles(facts, &sequence);

  if (recorded) add_memory_before_trace(facts, &sequence);

  // CPU -> CUDA. Now the kept blocks are CUDA's requests, and every dropped block has its reason.
  std::vector<ProfileRuleLine> rules;
  if (!recorded) rules = apply_rules(facts, options, &sequence);
  out.profile = summarize(facts, sequence, std::move(rules), recorded ? "recorded" : options.method);

  out.header.schema_version = 1;
  out.header.source = "cpu_profile";
  out.header.gpu = {gpu.id, gpu.name, static_cast<int64_t>(gpu.total_memory_bytes), gpu.compute_major, gpu.compute_minor};
  out.header.command = facts.metadata.command;
  out.process.torch = !options.torch.empty() ? options.torch : facts.metadata.torch;
  out.process.cuda = cuda_of_wheel(out.process.torch);
  out.process.python = facts.metadata.python;
  out.end.reason = facts.metadata.end_reason.empty() ? "script_end" : facts.metadata.end_reason;
  out.end.optimizer_steps = facts.phases.steps;
  add_warnings(facts, recorded, &out);
  if (!recorded && options.batch_size) warn_of_batch(facts, options, &out);
  if (!recorded) out.convolutions = convolutions_of(facts, options.dtype.empty());  // a recorded trace has their workspaces already

  // Runs the allocator. Now the trace is like a capture.
  simulate(facts, sequence, &out);
  return out;
}

}  // namespace gpucast

#include "src/report/perfetto_export.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/step_time.h"
#include "src/attribution/attribute.h"
#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/report/trace_events.h"
#include "version.h"

namespace gpucast {
namespace {

constexpr int64_t kLeastShare = 1000;  // blocks of at least 1/1000 of the peak are shown one by one
constexpr size_t kMostBlocks = 20000;  // and at most this many
constexpr uint32_t kMostFrames = 16;

// Perfetto needs thread numbers that are unique over all processes; 0 means idle.
constexpr int kMemory = 1, kBlocks = 2, kGpu = 3;  // processes
enum Thread : int { kSteps = 11, kPhases, kForward, kBackward, kLandmarks, kSegments, kFirstLane = 100, kFirstStream = 1'000'000 };

// ---- the time axis ------------------------------------------------------------------------------------------------------------

struct TimedMark {
  uint32_t position = 0;
  const Mark* mark = nullptr;
  int64_t ends = 0, begins = 0;  // the most slices that may end and begin here
  int64_t time_ns = 0;  // where the first slice begins; each further one begins a nanosecond later, and slices that end here end earlier
};

bool begins_slices(const Mark& mark) {
  return mark.kind == MarkKind::phase_begin || mark.kind == MarkKind::module_begin || mark.kind == MarkKind::module_backward;
}

constexpr int64_t kNsPerEvent = 1000000;  // if events have no times
constexpr int64_t kTailNs = 1000;         // after the last event, for slices that end there

// The times of events and marks, in nanoseconds. On one track all begins and ends have different times. So slices nest as their marks do
// for any order in which a reader sorts, also if it uses floating point.
//
// A mark has no time, only a position between two events. Slices that end there end immediately after the event before; slices that begin
// there begin immediately before the next event. A wait between them (for data, for example) belongs to no slice.
struct Axis {
  bool from_clock = false;         // the events' own times; else event i lies at i + 1 milliseconds
  std::vector<int64_t> event_ns;   // of event i
  std::vector<int64_t> border_ns;  // of position p: after slices that end there, before or at the first that begins there
  std::vector<TimedMark> marks;    // by position
};

bool clock_is_usable(const std::vector<AllocatorEvent>& events) {
  if (events.empty() || events.front().time_us <= 0 || events.front().time_us == events.back().time_us) return false;
  return std::is_sorted(events.begin(), events.end(),
                        [](const AllocatorEvent& a, const AllocatorEvent& b) { return a.time_us < b.time_us; });
}

bool has_module(const Trace& trace, ModuleId id) { return id.valid() && id.index() < trace.modules.size(); }

// The module and the modules around it, outermost first.
std::vector<ModuleId> path_of(const Trace& trace, ModuleId id) {
  std::vector<ModuleId> path;
  for (; has_module(trace, id) && path.size() <= trace.modules.size(); id = trace.modules[id.index()].parent) path.push_back(id);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<TimedMark> placed_marks(const Trace& trace) {
  const std::vector<uint32_t> positions = mark_positions(trace);
  std::vector<TimedMark> out;
  out.reserve(trace.marks.size());
  int64_t forward = 0, backward = 0;  // slices that may be open
  for (size_t i = 0; i < positions.size(); ++i) {
    const Mark& mark = trace.marks[i];
    TimedMark timed{positions[i], &mark};
    if (mark.kind == MarkKind::module_begin) {
      timed.begins = 1;
      ++forward;
    } else if (mark.kind == MarkKind::module_end) {
      timed.ends = forward;
      forward = std::max<int64_t>(forward - 1, 0);
    } else if (mark.kind == MarkKind::module_backward) {
      timed.ends = backward;
      timed.begins = backward = static_cast<int64_t>(path_of(trace, mark.module).size()) + 1;
    } else {
      timed.ends = forward + backward;
    }
    out.push_back(timed);
  }
  std::stable_sort(out.begin(), out.end(), [](const TimedMark& a, const TimedMark& b) { return a.position < b.position; });
  return out;
}

Axis make_axis(const Trace& trace) {
  Axis axis;
  axis.from_clock = clock_is_usable(trace.events);
  axis.marks = placed_marks(trace);
  const size_t count = trace.events.size();
  axis.event_ns.reserve(count);
  axis.border_ns.reserve(count + 1);
  int64_t now = 0;
  auto mark = axis.marks.begin();
  const auto put = [&](TimedMark* m) {
    m->time_ns = now + 2 + m->ends;
    now = m->time_ns + m->begins;
  };
  for (size_t position = 0; position <= count; ++position) {
    const auto end = std::find_if(mark, axis.marks.end(), [&](const TimedMark& m) { return m.position != position; });
    const auto first_begin = std::find_if(mark, end, [](const TimedMark& m) { return begins_slices(*m.mark); });
    for (; mark != first_begin; ++mark) put(&*mark);
    int64_t room = 2;
    for (auto later = mark; later != end; ++later) room += 2 + later->ends + later->begins;
    int64_t next = now + room;
    if (position < count) {
      next = std::max(next, axis.from_clock ? (trace.events[position].time_us - trace.events[0].time_us + 1) * 1000
                                            : (static_cast<int64_t>(position) + 1) * kNsPerEvent);
    }
    now = next - room;
    for (; mark != end; ++mark) put(&*mark);
    now = next;
    if (position < count) axis.event_ns.push_back(now);
    axis.border_ns.push_back(first_begin == end ? now : first_begin->time_ns);
  }
  return axis;
}

// ---- which blocks are shown one by one --------------------------------------------------------------------------------------------

struct ShownBlocks {
  std::vector<uint32_t> blocks;  // in order of birth
  std::string title;
};

ShownBlocks choose_blocks(const Lifetimes& lifetimes) {
  ShownBlocks out;
  const int64_t least_bytes = std::max<int64_t>(lifetimes.peak_allocated.bytes / kLeastShare, 1);
  for (uint32_t i = 0; i < lifetimes.blocks.size(); ++i) {
    if (lifetimes.blocks[i].size_bytes >= least_bytes) out.blocks.push_back(i);
  }
  if (out.blocks.size() <= kMostBlocks) {
    out.title = fmt::format("blocks of {} and larger", format_bytes(least_bytes));
    return out;
  }
  out.title = fmt::format("the {} largest of {} blocks", kMostBlocks, lifetimes.blocks.size());
  std::stable_sort(out.blocks.begin(), out.blocks.end(),
                   [&](uint32_t a, uint32_t b) { return lifetimes.blocks[a].size_bytes > lifetimes.blocks[b].size_bytes; });
  out.blocks.resize(kMostBlocks);
  std::sort(out.blocks.begin(), out.blocks.end());
  return out;
}

// One of chrome://tracing's colours for each category; Perfetto derives colours from the names.
const char* colour_of(Category category) {
  static constexpr const char* kColours[] = {"thread_state_running",  "rail_response", "thread_state_iowait",   "rail_animation", "good",
                                             "thread_state_runnable", "rail_idle",     "thread_state_sleeping", "rail_load",      "bad"};
  return kColours[static_cast<size_t>(category) % std::size(kColours)];
}

// ---- the file -----------------------------------------------------------------------------------------------------------------

class Writer {
 public:
  Writer(const Analysis& analysis, std::ostream& out)
      : facts_(*analysis.facts),
        trace_(facts_.trace),
        lifetimes_(facts_.lifetimes),
        attribution_(facts_.attribution),
        prediction_(analysis.prediction),
        gpu_(analysis.gpu),
        out_(out),
        axis_(make_axis(trace_)),
        shown_(choose_blocks(lifetimes_)),
        born_(trace_.events.size(), kNone),
        freed_(trace_.events.size(), kNone) {
    lanes_.resize(lifetimes_.blocks.size(), kNotShown);
    for (const uint32_t block : shown_.blocks) lanes_[block] = kShown;
    for (uint32_t i = 0; i < lifetimes_.blocks.size(); ++i) {
      const Block& block = lifetimes_.blocks[i];
      if (!block.before_start) born_[block.alloc_event] = i;
      if (block.free_event != Block::kNever) freed_[block.free_event] = i;
      used_[static_cast<size_t>(attribution_.blocks[i].category)] = true;
    }
  }

  void write() {
    write_names();
    write_start();
    const auto count = static_cast<uint32_t>(trace_.events.size());
    auto mark = axis_.marks.begin();
    for (uint32_t position = 0; position <= count; ++position) {
      bool border_done = false;
      for (; mark != axis_.marks.end() && mark->position == position; ++mark) {
        if (!border_done && begins_slices(*mark->mark)) {
          begin_spans(position);
          border_done = true;
        }
        follow_mark(*mark);
      }
      if (!border_done) begin_spans(position);
      if (position < count) follow_event(position);
    }
    for (Track* track : {&steps_, &phases_, &forward_, &backward_}) close_slices(track, 0, end_ns(), count);
    write_gpu_step();
    out_.finish(about());
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int32_t kNotShown = -2, kShown = -1;  // of lanes_

  // A slice that is open on a track.
  struct OpenSlice {
    ModuleId module;
    std::string name, args;  // as JSON
    int64_t begin_ns = 0;
    int64_t allocated_bytes = 0, highest_bytes = 0;  // at its begin; the highest since then
  };
  struct Track {
    int thread;
    std::vector<OpenSlice> open = {};  // outermost first
  };

  int64_t end_ns() const { return axis_.border_ns.back() + kTailNs; }

  void write_names() {
    out_.name_process(kMemory, axis_.from_clock ? "GPU memory" : "GPU memory (1 ms: one allocator event)");
    if (has_phases()) {
      out_.name_thread(kMemory, kSteps, "steps");
      out_.name_thread(kMemory, kPhases, "phases");
      out_.name_thread(kMemory, kForward, "modules, forward");
      out_.name_thread(kMemory, kBackward, "modules, backward");
    }
    out_.name_thread(kMemory, kLandmarks, "peaks and failures");
    out_.name_thread(kMemory, kSegments, "segments");
    if (!shown_.blocks.empty()) out_.name_process(kBlocks, shown_.title);
  }

  std::string about() const {
    Json about;
    about["gpucast_version"] = kGpucastVersion;
    about["file"] = trace_.path;
    about["source"] = prediction_.source;
    about["torch"] = prediction_.torch;
    about["gpu"] = prediction_.gpu_id;
    about["time_axis"] = time_axis();
    if (axis_.from_clock) about["first_event_time_us"] = trace_.events.front().time_us;
    about["peak_allocated_bytes"] = lifetimes_.peak_allocated.bytes;
    about["peak_reserved_bytes"] = lifetimes_.peak_reserved.bytes;
    return about.dump();
  }

  std::string time_axis() const {
    if (!axis_.from_clock) return "allocator events: event i is at i + 1 ms, because the events have no times in order";
    if (prediction_.source == "vgpu") return "clock of the host; the virtual GPU computes nothing, so it is not the time that a GPU takes";
    if (prediction_.source == "cpu_profile") return "clock of the profiled run";
    return "clock of the host that took the snapshot";
  }

  // ---- one step on the card, with the times of its kernels ----

  void write_gpu_step() {
    const std::vector<GpuSlice> slices = gpu_slices(facts_, gpu_);
    if (slices.empty()) return;
    const auto begin = std::find_if(axis_.marks.begin(), axis_.marks.end(),
                                    [&](const TimedMark& mark) { return mark.mark->sequence == trace_.observed.first_mark; });
    const int64_t shift_ns = begin == axis_.marks.end() ? 0 : begin->time_ns;
    out_.name_process(kGpu, fmt::format("GPU: step {} as it would run on {} (times of the card, not of the tracks above)",
                                        trace_.observed.step, gpu_.id));
    int thread = kFirstStream - 1;
    for (size_t i = 0; i < slices.size(); ++i) {
      const GpuSlice& slice = slices[i];
      if (i == 0 || slice.stream != slices[i - 1].stream) {
        ++thread;
        out_.name_thread(kGpu, thread, fmt::format("stream {}", slice.stream));
      }
      out_.add_event(
          R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{},"dur":{},"args":{{"kernel":{},"sizes":{},"bound_by":"{}","module":{},"launches":{}}}}})",
          kGpu, thread, json_text(slice.name), slice.kind, microseconds(shift_ns + std::llround(slice.start_ns)),
          microseconds(std::llround(slice.duration_ns)), json_text(slice.kernel), json_text(slice.sizes), slice.bound,
          json_text(module_label(trace_, slice.module)), slice.launches);
    }
  }

  // ---- counters ----

  void write_start() {
    const CategoryBytes start = categories_at(lifetimes_, attribution_, 0);
    std::copy(start.begin(), start.end(), categories_.begin());
    allocated_bytes_ = lifetimes_.start_allocated_bytes;
    reserved_bytes_ = lifetimes_.start_reserved_bytes;
    write_allocated(0);
    write_reserved(0);
    for (uint32_t i = 0; i < lifetimes_.blocks.size() && lifetimes_.blocks[i].before_start; ++i) show_block(i, 0);
    if (lifetimes_.peak_allocated.before_start) write_peak("allocated", lifetimes_.peak_allocated, 0);
    if (lifetimes_.peak_reserved.before_start) write_peak("reserved", lifetimes_.peak_reserved, 0);
  }

  void write_allocated(int64_t ns) {
    out_.add_event(R"({{"ph":"C","pid":{},"name":"allocated","ts":{},"args":{{"bytes":{}}}}})", kMemory, microseconds(ns),
                   allocated_bytes_);
    std::string values;
    for (size_t i = 0; i < categories_.size(); ++i) {
      if (!used_[i]) continue;
      fmt::format_to(std::back_inserter(values), R"({}"{}":{})", values.empty() ? "" : ",", category_name(static_cast<Category>(i)),
                     categories_[i]);
    }
    if (!values.empty())
      out_.add_event(R"({{"ph":"C","pid":{},"name":"category","ts":{},"args":{{{}}}}})", kMemory, microseconds(ns), values);
  }

  void write_reserved(int64_t ns) {
    out_.add_event(R"({{"ph":"C","pid":{},"name":"reserved","ts":{},"args":{{"bytes":{}}}}})", kMemory, microseconds(ns), reserved_bytes_);
  }

  // ---- events ----

  void follow_event(uint32_t i) {
    const AllocatorEvent& e = trace_.events[i];
    const int64_t ns = axis_.event_ns[i];
    if (born_[i] != kNone) {
      category_of(born_[i]) += lifetimes_.blocks[born_[i]].size_bytes;
      show_block(born_[i], ns);
    }
    if (freed_[i] != kNone) {
      category_of(freed_[i]) -= lifetimes_.blocks[freed_[i]].size_bytes;
      if (lanes_[freed_[i]] >= 0) free_lanes_.push(lanes_[freed_[i]]);
    }
    allocated_bytes_ = lifetimes_.allocated[i];
    if (born_[i] != kNone || freed_[i] != kNone) write_allocated(ns);
    for (Track* track : {&steps_, &phases_, &forward_, &backward_}) {
      if (!track->open.empty()) track->open.back().highest_bytes = std::max(track->open.back().highest_bytes, allocated_bytes_);
    }
    if (lifetimes_.reserved[i] != reserved_bytes_) {
      reserved_bytes_ = lifetimes_.reserved[i];
      write_reserved(ns);
    }
    switch (e.kind) {
      case EventKind::segment_alloc:
      case EventKind::segment_free:
      case EventKind::segment_map:
      case EventKind::segment_unmap:
        write_instant(kSegments, fmt::format("{} {}", event_kind_name(e.kind), format_bytes(e.size_bytes)), ns,
                      fmt::format(R"("size_bytes":{},"reserved_bytes":{},"address":"{:#x}","stream":{},"event":{},"stack":{})",
                                  e.size_bytes, reserved_bytes_, e.address, e.stream, i, stack_json(e.stack)));
        break;
      case EventKind::oom:
        write_instant(kLandmarks, fmt::format("out of memory: {} requested", format_bytes(e.size_bytes)), ns,
                      fmt::format(R"("requested_bytes":{},"free_bytes":{},"allocated_bytes":{},"reserved_bytes":{},"event":{},"stack":{})",
                                  e.size_bytes, e.address, allocated_bytes_, reserved_bytes_, i, stack_json(e.stack)));
        break;
      default:
        break;
    }
    if (i == lifetimes_.peak_allocated.event && !lifetimes_.peak_allocated.before_start)
      write_peak("allocated", lifetimes_.peak_allocated, ns);
    if (i == lifetimes_.peak_reserved.event && !lifetimes_.peak_reserved.before_start) write_peak("reserved", lifetimes_.peak_reserved, ns);
  }

  int64_t& category_of(uint32_t block) { return categories_[static_cast<size_t>(attribution_.blocks[block].category)]; }

  void write_peak(const char* kind, const Peak& peak, int64_t ns) {
    if (peak.bytes == 0) return;
    write_instant(kLandmarks, fmt::format("peak {} {}", kind, format_bytes(peak.bytes)), ns,
                  fmt::format(R"("allocated_bytes":{},"reserved_bytes":{},"event":{})", allocated_bytes_, reserved_bytes_, peak.event));
  }

  void write_instant(int thread, std::string_view name, int64_t ns, std::string_view args) {
    out_.add_event(R"({{"ph":"i","s":"t","pid":{},"tid":{},"name":{},"ts":{},"args":{{{}}}}})", kMemory, thread, json_text(name),
                   microseconds(ns), args);
  }

  std::string stack_json(StackId id) const {
    std::string out = "[";
    if (id.valid() && id.index() < trace_.stacks.size()) {
      const Stack& stack = trace_.stacks[id.index()];
      const uint32_t shown = std::min(stack.frame_count, kMostFrames);
      for (uint32_t i = 0; i < shown; ++i) {
        const Frame& frame = trace_.frames[trace_.stack_frames[stack.first_frame + i].index()];
        if (i > 0) out += ',';
        out += json_text(fmt::format("{}:{} {}", trace_.strings.text(frame.file), frame.line, trace_.strings.text(frame.function)));
      }
      if (shown < stack.frame_count) out += fmt::format(R"(,"... and {} more")", stack.frame_count - shown);
    }
    return out + "]";
  }

  // ---- blocks, each in the lowest lane that is free ----

  void show_block(uint32_t i, int64_t ns) {
    if (lanes_[i] == kNotShown) return;
    const Block& block = lifetimes_.blocks[i];
    const BlockAttribution& a = attribution_.blocks[i];
    if (free_lanes_.empty()) {
      free_lanes_.push(lane_count_);
      out_.name_thread(kBlocks, kFirstLane + lane_count_, "lane");
      ++lane_count_;
    }
    const int32_t lane = lanes_[i] = free_lanes_.top();
    free_lanes_.pop();
    const bool freed = block.free_event != Block::kNever;
    std::string name = fmt::format("{} {}", category_name(a.category), format_bytes(block.size_bytes));
    const std::string module = module_label(trace_, a.module);
    const std::string tensor = tensor_name(a.tensor);
    const std::string_view op = a.op.valid() ? std::string_view(attribution_.operators[a.op.index()]) : "";
    const std::string_view what = !tensor.empty() ? std::string_view(tensor) : !module.empty() ? std::string_view(module) : op;
    if (!what.empty()) name += fmt::format(" {}", what);
    std::string args = fmt::format(R"("size_bytes":{},"requested_bytes":{},"category":"{}")", block.size_bytes, block.requested_bytes,
                                   category_name(a.category));
    if (has_phases()) args += fmt::format(R"(,"phase":"{}","step":{},"module":{})", phase_name(a.phase), a.step, json_text(module));
    if (!tensor.empty()) args += fmt::format(R"(,"tensor":{})", json_text(tensor));
    if (!op.empty()) args += fmt::format(R"(,"operator":{})", json_text(op));
    args += fmt::format(R"(,"address":"{:#x}","stream":{},"alloc_event":{},"free_event":{},"stack":{})", block.address, block.stream,
                        block.before_start ? "null" : std::to_string(block.alloc_event), freed ? std::to_string(block.free_event) : "null",
                        stack_json(block.stack));
    out_.add_event(R"({{"ph":"X","pid":{},"tid":{},"cat":"{}","cname":"{}","name":{},"ts":{},"dur":{},"args":{{{}}}}})", kBlocks,
                   kFirstLane + lane, category_name(a.category), colour_of(a.category), json_text(name), microseconds(ns),
                   microseconds((freed ? axis_.event_ns[block.free_event] : end_ns()) - ns), args);
  }

  std::string tensor_name(TensorId id) const {
    if (!id.valid()) return "";
    const TensorMark& tensor = trace_.tensors[id.index()];
    return fmt::format("{}{}", tensor.kind == TensorKind::input ? "argument " : "", trace_.strings.text(tensor.name));
  }

  // ---- slices ----

  // False: a memory snapshot.
  bool has_phases() const { return !trace_.marks.empty(); }

  void open_slice(Track* track, ModuleId module, std::string_view name, int64_t ns, const std::string& args = "") {
    track->open.push_back({module, json_text(name), args, ns, allocated_bytes_, allocated_bytes_});
  }

  // Ends the slices that are open below `depth`, immediately before `ns`. A slice is written when it is complete.
  void close_slices(Track* track, size_t depth, int64_t ns, uint32_t position) {
    while (track->open.size() > depth) {
      const OpenSlice slice = std::move(track->open.back());
      track->open.pop_back();
      const int64_t end_ns = ns - 1 - static_cast<int64_t>(track->open.size() - depth);
      const int64_t now_bytes = lifetimes_.allocated_at(position);
      out_.add_event(
          R"({{"ph":"X","pid":{},"tid":{},"name":{},"ts":{},"dur":{},"args":{{"allocated_before_bytes":{},"allocated_after_bytes":{},)"
          R"("change_bytes":{},"highest_allocated_bytes":{}{}}}}})",
          kMemory, track->thread, slice.name, microseconds(slice.begin_ns), microseconds(end_ns - slice.begin_ns), slice.allocated_bytes,
          now_bytes, now_bytes - slice.allocated_bytes, slice.highest_bytes, slice.args);
      if (!track->open.empty()) track->open.back().highest_bytes = std::max(track->open.back().highest_bytes, slice.highest_bytes);
    }
  }

  // The time between the last step and the end of the capture is not a step.
  std::string step_name(int32_t step) const {
    const bool ended = trace_.end.reason == "steps" || trace_.end.reason == "script_end";
    if (step == 0) return "before step 1";
    return step > 1 && ended && step > attribution_.steps_completed ? fmt::format("after step {}", step - 1) : fmt::format("step {}", step);
  }

  // Begins new slices for steps and phases where a span of the attribution begins. Spans cover the history without gaps.
  void begin_spans(uint32_t position) {
    const auto& spans = attribution_.spans;
    if (!has_phases() || position >= trace_.events.size()) return;
    if (next_span_ >= spans.size() || spans[next_span_].begin != position) return;
    const Span& span = spans[next_span_];
    const bool new_step = next_span_ == 0 || span.step != spans[next_span_ - 1].step;
    const bool new_phase = new_step || span.phase != spans[next_span_ - 1].phase;
    ++next_span_;
    const int64_t ns = axis_.border_ns[position];
    if (new_phase) close_slices(&phases_, 0, ns, position);
    if (new_step) {
      close_slices(&steps_, 0, ns, position);
      open_slice(&steps_, {}, step_name(span.step), ns);
    }
    if (new_phase) open_slice(&phases_, {}, phase_name(span.phase), ns);
  }

  void open_module(Track* track, ModuleId id, int64_t ns) {
    const Module& module = trace_.modules[id.index()];
    const std::string label = module_label(trace_, id);
    open_slice(track, id, label.empty() ? "module" : label, ns,
               fmt::format(R"(,"module":{},"class":{})", json_text(trace_.strings.text(module.name)),
                           json_text(trace_.strings.text(module.type))));
  }

  // Follows a mark in the same way as attribution does.
  void follow_mark(const TimedMark& timed) {
    const Mark& mark = *timed.mark;
    switch (mark.kind) {
      case MarkKind::phase_begin:
        open_phases_.push_back(mark.phase);
        break;
      case MarkKind::phase_end: {
        const auto found = std::find(open_phases_.rbegin(), open_phases_.rend(), mark.phase);
        if (found == open_phases_.rend()) break;
        open_phases_.erase(std::prev(found.base()), open_phases_.end());
        if (mark.phase == MarkedPhase::backward) close_slices(&backward_, 0, timed.time_ns, timed.position);
        if (open_phases_.empty()) close_slices(&forward_, 0, timed.time_ns, timed.position);
        break;
      }
      case MarkKind::module_begin:
        if (has_module(trace_, mark.module)) open_module(&forward_, mark.module, timed.time_ns);
        break;
      case MarkKind::module_end: {
        const auto found =
            std::find_if(forward_.open.rbegin(), forward_.open.rend(), [&](const OpenSlice& slice) { return slice.module == mark.module; });
        if (found == forward_.open.rend()) break;
        close_slices(&forward_, static_cast<size_t>(forward_.open.rend() - found) - 1, timed.time_ns, timed.position);
        break;
      }
      case MarkKind::module_backward:
        follow_backward(timed);
        break;
      case MarkKind::exception:
        open_phases_.clear();
        close_slices(&forward_, 0, timed.time_ns, timed.position);
        close_slices(&backward_, 0, timed.time_ns, timed.position);
        write_instant(kLandmarks, fmt::format("exception {}", trace_.strings.text(mark.text)), timed.time_ns,
                      fmt::format(R"("allocated_bytes":{},"reserved_bytes":{})", allocated_bytes_, reserved_bytes_));
        break;
      case MarkKind::step:
      case MarkKind::tensors:
      case MarkKind::stats_reset:
      case MarkKind::capture_begin:
      case MarkKind::pool_begin:
      case MarkKind::pool_end:
      case MarkKind::pool_release:
      case MarkKind::other:
        break;
    }
  }

  // Backward goes from module to module. Modules around both stay open. The innermost slice is autograd's node.
  void follow_backward(const TimedMark& timed) {
    const std::vector<ModuleId> path = path_of(trace_, timed.mark->module);
    size_t shared = 0;
    while (shared < path.size() && shared < backward_.open.size() && backward_.open[shared].module == path[shared]) ++shared;
    close_slices(&backward_, shared, timed.time_ns, timed.position);
    int64_t begin_ns = timed.time_ns;
    for (size_t i = shared; i < path.size(); ++i) open_module(&backward_, path[i], begin_ns++);
    const std::string_view node = trace_.strings.text(timed.mark->text);
    if (!node.empty()) open_slice(&backward_, {}, node, begin_ns);
  }

  const Facts& facts_;
  const Trace& trace_;
  const Lifetimes& lifetimes_;
  const Attribution& attribution_;
  const Prediction& prediction_;
  const Gpu& gpu_;
  TraceEvents out_;
  Axis axis_;
  ShownBlocks shown_;
  std::vector<uint32_t> born_, freed_;  // by event: its block, or kNone
  std::vector<int32_t> lanes_;          // by block
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> free_lanes_;
  int32_t lane_count_ = 0;
  CategoryBytes categories_ = {};
  std::array<bool, static_cast<size_t>(Category::count_)> used_ = {};
  int64_t allocated_bytes_ = 0, reserved_bytes_ = 0;
  Track steps_{kSteps}, phases_{kPhases}, forward_{kForward}, backward_{kBackward};
  size_t next_span_ = 0;
  std::vector<MarkedPhase> open_phases_;
};

}  // namespace

void write_perfetto(const Analysis& analysis, std::ostream& out) { Writer(analysis, out).write(); }

}  // namespace gpucast

#include "src/work/step_operations.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "gpucast/error.h"
#include "src/attribution/open_marks.h"
#include "src/base/bounded.h"
#include "src/base/json.h"
#include "src/work/library_call.h"
#include "src/work/operator_table.h"

namespace gpucast {
namespace {

// Marks in the order of their sequence numbers, which is finer than the allocator's history: work between two marks need not allocate.
class Places {
 public:
  explicit Places(const Trace& trace) : open_(trace) {
    for (const Mark& mark : trace.marks)
      if (mark.sequence < trace.observed.last_mark) marks_.push_back(&mark);
    std::stable_sort(marks_.begin(), marks_.end(), [](const Mark* a, const Mark* b) { return a->sequence < b->sequence; });
  }

  // Asked with marks that do not fall.
  const OpenMarks& behind(int64_t sequence) {
    while (next_ < marks_.size() && marks_[next_]->sequence <= sequence) (void)open_.apply(*marks_[next_++]);
    return open_;
  }

 private:
  OpenMarks open_;
  std::vector<const Mark*> marks_;
  size_t next_ = 0;
};

// For each piece of work the operator that asked for it: index into the step's operators, or -1. A thread of the log is that thread of the
// profiler whose operators hold most of its work.
// What a graph launches belongs to the operator that ran when it was captured.
std::vector<int64_t> operators_of_work(const ObservedStep& step) {
  const int64_t shift = step.clock_unix_ns - step.unix_ns;
  const auto asked_ns = [&](size_t i) { return step.work[i].captured_ns >= 0 ? step.work[i].captured_ns : step.work[i].time_ns; };
  std::map<int64_t, std::vector<size_t>> operators, work;
  for (size_t i = 0; i < step.operators.size(); ++i) operators[step.operators[i].thread].push_back(i);
  for (size_t i = 0; i < step.work.size(); ++i)
    work[step.work[i].captured_ns >= 0 ? step.work[i].captured_thread : step.work[i].thread].push_back(i);
  for (auto& [thread, pieces] : work) {
    const auto earlier = [&](size_t a, size_t b) { return asked_ns(a) < asked_ns(b); };
    if (!std::is_sorted(pieces.begin(), pieces.end(), earlier)) std::stable_sort(pieces.begin(), pieces.end(), earlier);
  }
  std::vector<int64_t> out(step.work.size(), -1);
  for (const auto& [thread, pieces] : work) {
    std::vector<int64_t> best;
    size_t most = 0;
    for (const auto& [candidate, calls] : operators) {
      std::vector<int64_t> found(pieces.size(), -1);
      std::vector<size_t> open;  // nested calls
      size_t next = 0, held = 0;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const int64_t time = asked_ns(pieces[i]) + shift;
        for (; next < calls.size() && step.operators[calls[next]].start_ns <= time; ++next) {
          const OperatorCall& call = step.operators[calls[next]];
          while (!open.empty() && step.operators[open.back()].start_ns + step.operators[open.back()].duration_ns < call.start_ns)
            open.pop_back();
          open.push_back(calls[next]);
        }
        while (!open.empty() && step.operators[open.back()].start_ns + step.operators[open.back()].duration_ns < time) open.pop_back();
        if (open.empty()) continue;
        found[i] = static_cast<int64_t>(open.back());
        ++held;
      }
      if (held > most) {
        most = held;
        best = std::move(found);
      }
    }
    for (size_t i = 0; i < best.size(); ++i) out[pieces[i]] = best[i];
  }
  return out;
}

// What each kind of operator and each call is, made once.
class Known {
 public:
  explicit Known(const Trace& trace) : trace_(trace), settings_{trace.observed.tf32_products, trace.observed.tf32_convolutions} {}

  struct Entry {
    std::optional<Operation> operation;
    bool known = false;
  };

  const Entry& of_operator(uint32_t kind) {
    const auto [found, added] = operators_.try_emplace(kind);
    if (added) {
      const OperatorKind& row = trace_.observed.kinds[kind];
      const std::string_view name = trace_.strings.text(row.name);
      found->second.operation = operator_operation(name, Json::parse(trace_.strings.text(row.inputs)));
      found->second.known = found->second.operation && operator_is_known(name);
    }
    return found->second;
  }
  const Entry& of_call(const Work& work) {
    const auto [found, added] = calls_.try_emplace({work.name.index(), work.arguments.index()});
    if (added) {
      found->second.operation = library_call(trace_.strings.text(work.library), trace_.strings.text(work.name),
                                             Json::parse(trace_.strings.text(work.arguments)), settings_);
      found->second.known = found->second.operation.has_value();
    }
    return found->second;
  }

 private:
  const Trace& trace_;
  CallSettings settings_;
  std::unordered_map<uint32_t, Entry> operators_;
  std::map<std::pair<size_t, size_t>, Entry> calls_;
};

// The index of `one` in `all`, behind which it is put where it is new.
uint32_t place_of(uint64_t one, std::vector<uint64_t>* all) {
  const auto found = std::find(all->begin(), all->end(), one);
  const auto place = static_cast<uint32_t>(found - all->begin());
  if (found == all->end()) all->push_back(one);
  return place;
}

constexpr int64_t kBytesPerUnknownThread = 8;  // read one number, write one

}  // namespace

Operation operation_of_copy(const Work& work) {
  Operation out;
  out.kind = work.kind == WorkKind::memset ? OperationKind::memset : OperationKind::copy;
  out.element_bytes = 1;
  out.from_host = work.copy_kind == 1;
  out.to_host = work.copy_kind == 2;
  out.pageable = work.pageable;
  if (work.kind == WorkKind::copy && !out.from_host) out.bytes_read = work.size_bytes;
  if (!out.to_host) out.bytes_written = work.size_bytes;
  return out;
}

Operation operation_by_threads(const Work& work) {
  Operation out;
  out.kind = OperationKind::unknown;
  int64_t threads = 1;
  for (size_t i = 0; i < 3; ++i)
    threads = bounded_product({threads, std::max<int64_t>(1, work.grid[i]), std::max<int64_t>(1, work.block[i])});
  out.bytes_read = threads * kBytesPerUnknownThread / 2;
  out.bytes_written = threads * kBytesPerUnknownThread / 2;
  return out;
}

namespace {

// How many bytes pointers point to: each up to the end of its block, or to the next of them; one that stands twice is read and written.
// Blocks that were given back count as they were last: the memory of a CUDA graph is in nobody's hands when it is replayed.
class Blocks {
 public:
  explicit Blocks(const Trace& trace) : events_(trace.events) {}

  // Asked with times that do not fall, but for threads that write at once.
  int64_t bytes(std::vector<uint64_t> pointers, double unix_us) {
    for (; next_ < events_.size() && static_cast<double>(events_[next_].time_us) <= unix_us; ++next_) {
      const AllocatorEvent& event = events_[next_];
      if (event.kind != EventKind::alloc || event.size_bytes <= 0) continue;
      const uint64_t end = event.address + static_cast<uint64_t>(event.size_bytes);
      if (end < event.address) continue;  // a damaged file
      ends_.erase(ends_.lower_bound(event.address), ends_.lower_bound(end));
      ends_[event.address] = end;
    }
    std::sort(pointers.begin(), pointers.end());
    int64_t out = 0;
    for (const uint64_t pointer : pointers) {
      const auto behind = ends_.upper_bound(pointer);
      if (behind == ends_.begin()) continue;
      const uint64_t block_end = std::prev(behind)->second;
      const auto next = std::upper_bound(pointers.begin(), pointers.end(), pointer);
      const uint64_t end = next != pointers.end() ? std::min(block_end, *next) : block_end;
      if (end > pointer) out += static_cast<int64_t>(std::min<uint64_t>(end - pointer, kMostElements - out));
    }
    return out;
  }

 private:
  const std::vector<AllocatorEvent>& events_;
  size_t next_ = 0;
  std::map<uint64_t, uint64_t> ends_;  // by where blocks begin
};

// A kernel that was compiled at run time, of which only what it points to is known. Inductor's names say what kind they are.
Operation of_compiled(std::string_view name, int64_t bytes) {
  Operation out;
  out.kind = name.starts_with("triton_for_")                                      ? OperationKind::optimizer
             : name.starts_with("triton_red_")                                    ? OperationKind::reduction
             : name.starts_with("triton_poi_") || name.starts_with("triton_per_") ? OperationKind::elementwise
                                                                                  : OperationKind::unknown;
  out.bytes_read = bytes;
  return out;
}

void read_inputs(const Trace& trace, StepOperations* out) {
  for (const TensorMark& tensor : trace.tensors) {
    if (tensor.kind != TensorKind::input || tensor.sequence < trace.observed.first_mark || tensor.sequence >= trace.observed.last_mark)
      continue;
    const Json shape = Json::parse(trace.strings.text(tensor.shape));
    if (!shape.is_array() || shape.empty()) continue;
    const int64_t first = shape.at(0).get<int64_t>();
    if (out->samples == 0) out->samples = first;
    if (out->tokens == 0 && shape.size() == 2 && trace.strings.text(tensor.dtype) == "int64")
      out->tokens = bounded_product({first, shape.at(1).get<int64_t>()});
  }
}

// What our watching takes of a step's host. Hooks of ours are timed as they run. Beside them each mark and each allocation costs: the call
// of the hook, and the stack that PyTorch keeps with an allocation. Six scripts, with and without: 6 to 9 us.
constexpr double kWatchedNs = 6'500;
constexpr double kObservedTimed = 1.35;  // how much slower an observed step is, less its hooks, where no other was seen
// The same in older captures, whose hooks were not timed.
constexpr double kMarkNs = 20'000;
constexpr double kObserving = 1.6;
constexpr double kLeastHostShare = 0.25;  // whatever is taken off for marks, this much of the host's time stays

// What the program waited for its loader between two moments.
struct Waited {
  int64_t wall_us = 0, cpu_us = 0, batches = 0;
};
Waited waited_for_loader(const Trace& trace, int64_t begin_us, int64_t end_us) {
  Waited out;
  for (const TakenBatch& batch : trace.loader.taken) {
    if (batch.unix_us < begin_us || batch.unix_us + batch.wall_us > end_us) continue;
    out.wall_us += batch.wall_us;
    out.cpu_us += batch.cpu_us;
    ++out.batches;
  }
  return out;
}

bool while_it_waits(const Trace& trace, int64_t time_us) {
  const std::vector<TakenBatch>& taken = trace.loader.taken;
  const auto behind =
      std::upper_bound(taken.begin(), taken.end(), time_us, [](int64_t us, const TakenBatch& one) { return us < one.unix_us; });
  return behind != taken.begin() && time_us <= std::prev(behind)->unix_us + std::prev(behind)->wall_us;
}

// How long the host works for a step that nobody looks at, over how long this one took. The CPU time of the process, where that is less
// than what the clock on the wall says: then others worked on this machine, too.
double host_scale(const Trace& trace, double observed_ns) {
  if (observed_ns <= 0) return 1;
  const ObservedStep& observed = trace.observed;
  const bool timed = !observed.hooks_us.empty();
  std::map<int64_t, const Mark*> ends;  // of steps
  int64_t marks = 0, begin_us = 0, end_us = 0;
  for (const Mark& mark : trace.marks) {
    if (mark.kind == MarkKind::step) ends[mark.step] = &mark;
    if (mark.sequence < observed.first_mark || mark.sequence > observed.last_mark) continue;
    if (marks == 0) begin_us = mark.time_us;
    end_us = mark.time_us;
    marks += mark.sequence < observed.last_mark && !while_it_waits(trace, mark.time_us);
  }
  const auto hooks_us = [&](int64_t step) {
    const auto found = observed.hooks_us.find(step), before = observed.hooks_us.find(step - 1);
    return found == observed.hooks_us.end() || before == observed.hooks_us.end() ? 0 : found->second - before->second;
  };
  const auto for_each_step = [&](auto&& visit) {
    for (const auto& [step, end] : ends)
      if (const auto before = ends.find(step - 1); step >= 2 && before != ends.end()) visit(step, *before->second, *end);
  };
  int64_t least_hooks_us = INT64_MAX;  // hooks of every step do much the same, and some step's were not interrupted
  for_each_step([&](int64_t step, const Mark&, const Mark&) { least_hooks_us = std::min(least_hooks_us, hooks_us(step)); });
  double plain_ns = observed_ns, unwatched_ns = 0;  // the least of all steps; of those that were not observed
  for_each_step([&](int64_t step, const Mark& begin, const Mark& end) {
    const Waited waited = waited_for_loader(trace, begin.time_us, end.time_us);
    int64_t us = end.time_us - begin.time_us - waited.wall_us - hooks_us(step);
    if (begin.cpu_us > 0 && end.cpu_us > 0) us = std::min(us, end.cpu_us - begin.cpu_us - waited.cpu_us - least_hooks_us);
    const double ns = static_cast<double>(us) * 1e3;
    if (ns <= 0) return;  // a clock was set back
    if (step == observed.step) {
      plain_ns = std::min(plain_ns, ns / (timed ? kObservedTimed : kObserving));
    } else {
      unwatched_ns = unwatched_ns > 0 ? std::min(unwatched_ns, ns) : ns;
    }
  });
  if (unwatched_ns > 0) plain_ns = std::min(plain_ns, unwatched_ns);  // what disturbs a step only adds to it
  if (ends.size() < 2) plain_ns /= kObserving;
  double watching_ns = static_cast<double>(marks) * kMarkNs;
  if (timed) {
    const auto allocations = std::count_if(trace.events.begin(), trace.events.end(), [&](const AllocatorEvent& event) {
      return event.kind == EventKind::alloc && event.time_us >= begin_us && event.time_us <= end_us &&
             !while_it_waits(trace, event.time_us);
    });
    watching_ns = static_cast<double>(marks + allocations) * kWatchedNs;
  }
  return std::clamp((plain_ns - watching_ns) / observed_ns, kLeastHostShare * plain_ns / observed_ns, 1.0);
}

// The step as if each batch had been there: the times of what follows move up, and where a batch was taken is kept.
void take_loader_out(const Trace& trace, int64_t begin_us, int64_t end_us, StepOperations* out) {
  std::vector<LoopBatch> elsewhere;
  int64_t waited_ns = 0;
  auto operation = out->operations.begin();
  auto order = out->order.begin();
  const auto move_until = [&](int64_t ns) {
    for (; operation != out->operations.end() && operation->asked_ns < ns; ++operation)
      operation->asked_ns = std::max<int64_t>(0, operation->asked_ns - waited_ns);
    for (; order != out->order.end() && order->asked_ns < ns; ++order) order->asked_ns = std::max<int64_t>(0, order->asked_ns - waited_ns);
  };
  for (const TakenBatch& batch : trace.loader.taken) {
    if (batch.unix_us < begin_us || batch.unix_us + batch.wall_us > end_us) {
      elsewhere.push_back({static_cast<double>(batch.wall_us) * 1e3, static_cast<double>(batch.cpu_us) * 1e3});
      continue;
    }
    const int64_t taken_ns = (batch.unix_us - begin_us) * 1000;
    move_until(taken_ns);
    out->batches.push_back({taken_ns - waited_ns, static_cast<size_t>(operation - out->operations.begin())});
    waited_ns += batch.wall_us * 1000;
  }
  move_until(INT64_MAX);
  if (elsewhere.size() > 1) elsewhere.erase(elsewhere.begin());  // the first opens and fills what later ones find
  if (elsewhere.empty() || trace.loader.workers > 0) return;     // workers fill their queue in the first steps
  const auto middle = elsewhere.begin() + static_cast<ptrdiff_t>(elsewhere.size() / 2);
  std::nth_element(elsewhere.begin(), middle, elsewhere.end(), [](const LoopBatch& a, const LoopBatch& b) { return a.ns < b.ns; });
  out->loop_batch = *middle;
}

// What says that the step may not be whole; null: nothing.
const ProblemCount* damage(const Trace& trace) {
  for (const Problem problem :
       {Problem::truncated_file, Problem::damaged_file, Problem::no_eof, Problem::lines_missing, Problem::bad_json}) {
    if (trace.problems[problem].count > 0) return &trace.problems[problem];
  }
  return nullptr;
}

}  // namespace

bool has_step_operations(const Trace& trace) {
  return trace.observed.step != 0 && trace.observed.clock_unix_ns != 0 && damage(trace) == nullptr;
}

Error why_no_step(const Trace& trace) {
  if (const ProblemCount* found = damage(trace))
    return Error("the capture is cut off or damaged, and its step may not be whole", found->first,
                 "copy it again (in binary mode), or capture again; `gpucast analyze` says what is left of its memory");
  const bool old = trace.observed.clock_unix_ns == 0 && trace.kernels > 0;
  return Error(
      old                               ? "the capture has no times: an older gpucast made it"
      : trace.header.source != "vgpu"   ? "only captures of `gpucast run` tell what the GPU was asked to do"
      : trace.end.reason == "exception" ? "no whole step was observed: the script raised an exception before"
                                        : "no whole step was observed: the script took too few steps, or profiles itself",
      trace.path,
      "capture again: `gpucast run -o FILE -- COMMAND`, for two steps or more (--steps 1 observes the first). Without an optimizer "
      "a step is a forward of a model in eval() without gradients");
}

StepOperations step_operations(const Trace& trace) {
  if (!has_step_operations(trace)) throw why_no_step(trace);
  const ObservedStep& step = trace.observed;
  StepOperations out;
  const std::vector<int64_t> owners = operators_of_work(step);
  Places places(trace);
  Known known(trace);
  Blocks blocks(trace);
  const int64_t shift = step.clock_unix_ns - step.unix_ns;
  int64_t open_call = -1;  // the operator whose kernels the last operation is made of
  // A shape is what it was made from, and how many launches it is.
  using Source = std::tuple<int, int64_t, int64_t, int64_t>;
  std::map<Source, uint32_t> shapes;
  std::vector<uint64_t> events;
  Source source;
  Operation operation;
  const auto close = [&] {
    if (out.operations.empty()) return;
    std::get<3>(source) = operation.launches;
    const auto [found, added] = shapes.try_emplace(source, static_cast<uint32_t>(out.shapes.size()));
    if (added) out.shapes.push_back(operation);
    out.operations.back().shape = found->second;
  };
  auto next_order = step.order.begin();
  const auto order_until = [&](size_t work) {
    for (; next_order != step.order.end() && next_order->work_before <= work; ++next_order) {
      out.order.push_back({next_order->kind, place_of(next_order->stream, &out.streams), place_of(next_order->recorded_on, &out.streams), 0,
                           next_order->time_ns + shift, out.operations.size()});
      if (next_order->kind == OrderKind::graph_begin) open_call = -1;  // launched again
      if (next_order->event != 0) out.order.back().event = place_of(next_order->event, &events);
    }
  };
  for (size_t i = 0; i < step.work.size(); ++i) {
    order_until(i);
    const Work& work = step.work[i];
    ++out.work;
    const OperatorCall* owner = owners[i] >= 0 ? &step.operators[static_cast<size_t>(owners[i])] : nullptr;
    const std::string_view owner_name = owner ? trace.strings.text(step.kinds[owner->kind].name) : std::string_view();
    if (work.kind == WorkKind::kernel && work.pointers.empty() && owners[i] >= 0 && owners[i] == open_call && !out.operations.empty()) {
      ++operation.launches;
      ++out.operations.back().work_count;
      out.known_work += out.operations.back().known ? 1 : 0;
      continue;
    }
    close();
    const OpenMarks& place = places.behind(work.mark);
    StepOperation made;
    made.first_work = i;
    made.phase = place.phase();
    made.module = place.module();
    made.stream = place_of(work.stream, &out.streams);
    made.asked_ns = work.time_ns + shift;
    made.asked_unix_us = (static_cast<double>(step.clock_unix_ns) + static_cast<double>(work.time_ns)) / 1000;
    made.mark = work.mark;
    made.kernel = std::string(trace.strings.text(work.name));
    open_call = -1;
    const int64_t pointed_bytes = work.pointers.empty() ? 0 : blocks.bytes(work.pointers, made.asked_unix_us);
    if (pointed_bytes > 0) {
      operation = of_compiled(made.kernel, pointed_bytes);
      made.known = operation.kind != OperationKind::unknown;
      made.name = made.kernel;
      source = {5, pointed_bytes, static_cast<int64_t>(operation.kind), 0};
    } else if (work.kind == WorkKind::kernel) {
      const Known::Entry* entry = owner ? &known.of_operator(owner->kind) : nullptr;
      made.known = entry && entry->known;
      const bool sized = entry && entry->operation;
      operation = sized ? *entry->operation : operation_by_threads(work);
      source = {sized ? 0 : 1, sized ? owner->kind : operation.bytes_read, 0, 0};
      made.name = owner ? std::string(owner_name) : made.kernel;
      open_call = owners[i];
    } else if (work.kind == WorkKind::call) {
      const Known::Entry& entry = known.of_call(work);
      made.known = entry.known;
      operation = entry.operation ? *entry.operation : operation_by_threads(work);
      source = {2, static_cast<int64_t>(work.name.index()), static_cast<int64_t>(work.arguments.index()), 0};
      made.name = owner ? std::string(owner_name) : made.kernel;
    } else {
      made.known = true;
      operation = operation_of_copy(work);
      source = {work.kind == WorkKind::memset ? 3 : work.pageable ? 6 : 4, work.copy_kind, work.size_bytes, 0};
      made.kernel = work.kind == WorkKind::memset ? "memset" : "memcpy";
      made.name = owner ? std::string(owner_name) : made.kernel;
      made.waits = operation.to_host && !step.has_order;
    }
    out.known_work += made.known ? 1 : 0;
    out.operations.push_back(std::move(made));
  }
  close();
  order_until(step.work.size());
  out.events = events.size();
  int64_t begin_us = 0, end_us = 0;
  for (const Mark& mark : trace.marks) {
    if (mark.sequence == step.first_mark) begin_us = mark.time_us;
    if (mark.sequence == step.last_mark) end_us = mark.time_us;
  }
  out.host_ns = std::max<int64_t>(0, end_us - begin_us - waited_for_loader(trace, begin_us, end_us).wall_us) * 1000;
  const int64_t begin_ns = begin_us * 1000 - step.unix_ns;  // marks count from 1970, too
  for (StepOperation& made : out.operations) made.asked_ns = std::max<int64_t>(0, made.asked_ns - begin_ns);
  for (StepOrder& made : out.order) made.asked_ns = std::max<int64_t>(0, made.asked_ns - begin_ns);
  take_loader_out(trace, begin_us, end_us, &out);
  out.host_scale = host_scale(trace, static_cast<double>(out.host_ns));
  read_inputs(trace, &out);
  return out;
}

}  // namespace gpucast

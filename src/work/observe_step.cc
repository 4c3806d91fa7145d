#include "src/work/observe_step.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gpucast/error.h"
#include "src/attribution/open_marks.h"
#include "src/base/bounded.h"
#include "src/kernels/known_kernels.h"
#include "src/work/captured_places.h"
#include "src/work/communications.h"
#include "src/work/counted_kernels.h"
#include "src/work/host_time.h"
#include "src/work/kernel_form.h"
#include "src/work/library_call.h"
#include "src/work/operator_forms.h"
#include "src/work/operator_table.h"
#include "src/work/operators_of_work.h"
#include "src/work/pointed_bytes.h"
#include "src/work/step_inputs.h"

namespace gpucast {
namespace {

// The marks in the order of their sequence numbers. That order is finer than the allocator's history, because work between two marks may
// allocate nothing.
class OpenMarksInOrder {
 public:
  explicit OpenMarksInOrder(const Trace& trace) : open_(trace) {
    for (const Mark& mark : trace.marks)
      if (mark.sequence < trace.observed.last_mark) marks_.push_back(&mark);
    std::stable_sort(marks_.begin(), marks_.end(), [](const Mark* a, const Mark* b) { return a->sequence < b->sequence; });
  }

  // The phases and modules that are open after mark `sequence`. `sequence` may not decrease from call to call.
  const OpenMarks& open_after(int64_t sequence) {
    while (next_ < marks_.size() && marks_[next_]->sequence <= sequence) (void)open_.apply(*marks_[next_++]);
    return open_;
  }

 private:
  OpenMarks open_;
  std::vector<const Mark*> marks_;
  size_t next_ = 0;
};

// The operation of each kind of operator and of each library call, computed once.
class OperationCache {
 public:
  explicit OperationCache(const Trace& trace) : trace_(trace), settings_{trace.observed.tf32_products, trace.observed.tf32_convolutions} {}

  struct Entry {
    std::optional<Operation> operation;
    bool known = false;
  };

  const Entry& of_operator(uint32_t kind) {
    const auto [found, added] = operators_.try_emplace(kind);
    if (added) {
      const OperatorKind& row = trace_.observed.kinds[kind];
      const std::string_view name = trace_.strings.text(row.name);
      found->second.operation = operator_operation(name, row.inputs);
      const bool by_threads = OperatorName(name).form == OperatorForm::by_threads;
      found->second.known = by_threads || (found->second.operation && operator_is_known(name));
    }
    return found->second;
  }
  const Entry& of_call(const Work& work) {
    const auto [found, added] = calls_.try_emplace({work.name.index(), work.arguments});
    if (added) {
      CallArguments arguments = trace_.observed.call_arguments[work.arguments];
      // A communicator that is split while some ranks do not run here does not know its size.
      if (const Communicator* known = find_communicator(trace_, arguments.group))
        arguments.world = static_cast<int64_t>(known->ranks.size());
      found->second.operation = library_call(trace_.strings.text(work.library), trace_.strings.text(work.name), arguments, settings_);
      found->second.known = found->second.operation.has_value();
    }
    return found->second;
  }

 private:
  const Trace& trace_;
  CallSettings settings_;
  std::unordered_map<uint32_t, Entry> operators_;
  std::map<std::pair<size_t, uint32_t>, Entry> calls_;
};

// The index of `handle` in `all`; a new handle is appended.
uint32_t number_of(uint64_t handle, std::vector<uint64_t>* all) {
  const auto known = std::find(all->begin(), all->end(), handle);
  const auto number = static_cast<uint32_t>(known - all->begin());
  if (known == all->end()) all->push_back(handle);
  return number;
}

// The operator or call that an operation was derived from. Reports keep operations of equal sizes apart if their origins differ.
struct Origin {
  int64_t operator_kind = -1;   // index in ObservedStep::kinds; -1: none
  StringId call;                // of a library: its name, ...
  uint32_t call_arguments = 0;  // ... and index in ObservedStep::call_arguments
  int32_t communication = -1;
  friend auto operator<=>(const Origin&, const Origin&) = default;
};

constexpr int64_t kBytesPerUnknownThread = 8;  // read one number, write one

}  // namespace

Operation operation_of_copy(const Work& work) {
  Operation out;
  out.kind = work.kind == WorkKind::memset ? OperationKind::memset : OperationKind::copy;
  out.element_bytes = 1;
  out.from_host = work.copy_kind == 1;
  out.to_host = work.copy_kind == 2;
  out.between_cards = work.copy_kind == kCopyBetweenCards;
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

// A kernel that was compiled at run time, without its code: only the buffers passed to it are known.
Operation of_compiled(std::string_view name, int64_t bytes) {
  Operation out;
  out.kind = kind_of_compiled(name, OperationKind::unknown);
  out.bytes_read = bytes;
  return out;
}

// The problem that may have made the step incomplete; null: there is none.
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
      : trace.header.source != "vgpu"   ? "only captures of `gpucast run` record the GPU's work"
      : trace.end.reason == "exception" ? "no whole step was observed: the script raised an exception before"
                                        : "no whole step was observed: the script took too few steps, or profiles itself",
      trace.path,
      "capture again: `gpucast run -o FILE -- COMMAND`, for two steps or more (--steps 1 observes the first). Without an optimizer "
      "a step is a forward of a model in eval() without gradients");
}

namespace {

// Makes the operations of a step, one piece of work after another.
class StepMaker {
 public:
  explicit StepMaker(const Trace& trace)
      : trace_(trace),
        step_(trace.observed),
        owners_(operators_of_work(trace.observed)),
        captured_(captured_places(trace)),
        open_marks_(trace),
        cache_(trace),
        pointed_(trace),
        communications_(trace, &out_),
        next_order_(step_.order.begin()) {}

  StepOperations observe() {
    for (size_t i = 0; i < step_.work.size(); ++i) {
      add_order_before(i);
      add_work(i);
    }
    close_operation();
    add_order_before(step_.work.size());
    out_.events = events_.size();
    return std::move(out_);
  }

 private:
  // Adds the waits and event records before this piece of work.
  void add_order_before(size_t work) {
    for (; next_order_ != step_.order.end() && next_order_->work_before <= work; ++next_order_) {
      out_.order.push_back({next_order_->kind, number_of(next_order_->stream, &out_.streams),
                            number_of(next_order_->recorded_on, &out_.streams), 0, next_order_->time_ns + shift_ns_,
                            out_.operations.size()});
      if (next_order_->kind == OrderKind::graph_begin) open_call_ = -1, begun_calls_.clear();  // work after it belongs to a new launch
      if (next_order_->event != 0) out_.order.back().event = number_of(next_order_->event, &events_);
    }
  }

  // The kernels of one operator call are one operation.
  bool belongs_to_open_operation(size_t i) const {
    const Work& work = step_.work[i];
    return work.kind == WorkKind::kernel && work.pointers.empty() && work.parameters.empty() && owners_[i] >= 0 &&
           owners_[i] == open_call_ && !out_.operations.empty() && !is_known_kernel(trace_.strings.text(work.name));
  }

  void add_work(size_t i) {
    const Work& work = step_.work[i];
    ++out_.work;
    if (belongs_to_open_operation(i)) {
      ++operation_.launches;
      ++out_.operations.back().work_count;
      out_.known_work += out_.operations.back().known ? 1 : 0;
      return;
    }
    if (joins_communication(work)) return;
    close_operation();
    const OpenMarks& place = open_marks_.open_after(work.mark);
    StepOperation made;
    made.first_work = i;
    made.phase = captured_[i] ? captured_[i]->phase : place.phase();
    made.module = captured_[i] ? captured_[i]->module : place.module();
    made.stream = number_of(work.stream, &out_.streams);
    made.asked_ns = work.time_ns + shift_ns_;
    made.asked_unix_us = (static_cast<double>(step_.clock_unix_ns) + static_cast<double>(work.time_ns)) / 1000;
    made.mark = work.mark;
    made.kernel = std::string(trace_.strings.text(work.name));
    open_call_ = -1;
    origin_ = {};
    if (work.kind == WorkKind::kernel) {
      if (!set_compiled(work, &made)) set_kernel(i, &made);
    } else if (work.kind == WorkKind::call) {
      set_call(i, &made);
    } else {
      set_copy(i, &made);
    }
    out_.known_work += made.known ? 1 : 0;
    out_.operations.push_back(std::move(made));
  }

  // True: a call of NCCL that runs with the one before it.
  bool joins_communication(const Work& work) {
    if (!communications_.is_open() || work.kind != WorkKind::call) return false;
    const CallArguments& arguments = step_.call_arguments[work.arguments];
    const OperationCache::Entry& entry = cache_.of_call(work);
    if (!arguments.joins || !entry.operation || entry.operation->kind != OperationKind::collective) return false;
    communications_.join(trace_.strings.text(work.name), arguments, *entry.operation, &operation_);
    out_.operations.back().asked_ns = work.time_ns + shift_ns_;
    ++out_.operations.back().work_count;
    ++out_.known_work;
    return true;
  }

  // Unset: its code is not known, or could not be counted.
  std::optional<CountedOperation> counted_operation(const Work& work) {
    if (work.compiled < 0 || step_.compiled[static_cast<size_t>(work.compiled)].code < 0) return std::nullopt;
    const CompiledKernel& kernel = step_.compiled[static_cast<size_t>(work.compiled)];
    const auto code = step_.codes.find(kernel.code);
    if (code == step_.codes.end()) return std::nullopt;
    const std::string number = std::to_string(kernel.code);
    counted_.add_code(number, code->second);
    std::vector<const KnownValues*> known;
    for (const int64_t id : work.values) {
      const auto values = step_.values.find(id);
      if (values != step_.values.end()) known.push_back(&values->second);
    }
    return counted_.operation(
        number, std::string(trace_.strings.text(work.name)),
        {work.grid, work.block, static_cast<uint32_t>(std::min<int64_t>(work.size_bytes, UINT32_MAX)), work.parameters},
        {kernel.registers, kernel.static_shared_bytes, kernel.local_bytes}, known);
  }

  // False: the work is no kernel that was compiled at run time, or nothing is known of it.
  bool set_compiled(const Work& work, StepOperation* made) {
    if (const std::optional<CountedOperation> counted = counted_operation(work)) {
      operation_ = counted->operation;
      // If inductor's name shows the kind, values decide little.
      made->known = !counted->assumed || operation_.kind != OperationKind::compiled;
    } else {
      const int64_t pointed_bytes = work.pointers.empty() ? 0 : pointed_.bytes(work.pointers, made->asked_unix_us);
      if (pointed_bytes == 0) return false;
      operation_ = of_compiled(made->kernel, pointed_bytes);
      made->known = operation_.kind != OperationKind::unknown;
    }
    made->name = made->kernel;
    return true;
  }

  void set_kernel(size_t i, StepOperation* made) {
    const Work& work = step_.work[i];
    const OperatorCall* owner = owner_of(i);
    const OperationCache::Entry* entry = owner ? &cache_.of_operator(owner->kind) : nullptr;
    if (const std::optional<Operation> known = known_kernel(made->kernel, work.grid, work.block)) {
      made->known = true;
      made->name = owner_name(i, made->kernel);
      operation_ = *known;
      if (owner) origin_.operator_kind = owner->kind;
      return;
    }
    made->known = entry && entry->known;
    const bool sized = entry && entry->operation;
    made->guessed = sized && !entry->known;
    operation_ = sized ? *entry->operation : operation_by_threads(work);
    if (!sized && made->known) operation_.kind = OperationKind::indexing;  // OperatorForm::by_threads
    if (sized) {
      origin_.operator_kind = owner->kind;
      apply_kernel_form({made->kernel, work.grid, work.block}, &operation_);
      if (!begun_calls_.insert(owners_[i]).second) operation_ = launch_of(operation_);
    }
    made->name = owner_name(i, made->kernel);
    open_call_ = owners_[i];
  }

  void set_call(size_t i, StepOperation* made) {
    const Work& work = step_.work[i];
    const OperationCache::Entry& entry = cache_.of_call(work);
    made->known = entry.known;
    operation_ = entry.operation ? *entry.operation : operation_by_threads(work);
    origin_.call = work.name;
    origin_.call_arguments = work.arguments;
    made->name = owner_name(i, made->kernel);
    if (operation_.kind == OperationKind::collective)
      communications_.begin(trace_.strings.text(work.name), step_.call_arguments[work.arguments], operation_);
  }

  void set_copy(size_t i, StepOperation* made) {
    const Work& work = step_.work[i];
    made->known = true;
    operation_ = operation_of_copy(work);
    made->kernel = work.kind == WorkKind::memset ? "memset" : "memcpy";
    made->name = owner_name(i, made->kernel);
    made->waits = operation_.to_host && !step_.has_order;
  }

  const OperatorCall* owner_of(size_t i) const { return owners_[i] >= 0 ? &step_.operators[static_cast<size_t>(owners_[i])] : nullptr; }
  std::string owner_name(size_t i, const std::string& without) const {
    const OperatorCall* owner = owner_of(i);
    return owner ? std::string(trace_.strings.text(step_.kinds[owner->kind].name)) : without;
  }

  // The last operation now has all its launches. Equal operations of one origin share a shape.
  void close_operation() {
    if (out_.operations.empty()) return;
    if (communications_.is_open()) out_.operations.back().communication = origin_.communication = communications_.end(&operation_);
    const auto [found, added] = shapes_.try_emplace({origin_, operation_}, static_cast<uint32_t>(out_.shapes.size()));
    if (added) out_.shapes.push_back(operation_);
    out_.operations.back().shape = found->second;
  }

  const Trace& trace_;
  const ObservedStep& step_;
  StepOperations out_;
  const std::vector<int64_t> owners_;
  const std::vector<std::optional<CapturedPlace>> captured_;
  OpenMarksInOrder open_marks_;
  OperationCache cache_;
  PointedBytes pointed_;
  Communications communications_;
  CountedKernels counted_;
  const int64_t shift_ns_ = step_.clock_unix_ns - step_.unix_ns;
  std::vector<Order>::const_iterator next_order_;
  std::unordered_set<int64_t> begun_calls_;  // operator calls that had a kernel
  int64_t open_call_ = -1;                   // the operator call that the last operation's kernels belong to
  Operation operation_;                      // the last operation
  Origin origin_;                            // of the last operation
  std::map<std::pair<Origin, Operation>, uint32_t> shapes_;
  std::vector<uint64_t> events_;
};

}  // namespace

StepOperations step_operations(const Trace& trace) {
  if (!has_step_operations(trace)) throw why_no_step(trace);
  const ObservedStep& step = trace.observed;
  StepOperations out = StepMaker(trace).observe();
  int64_t begin_us = 0, end_us = 0;
  for (const Mark& mark : trace.marks) {
    if (mark.sequence == step.first_mark) begin_us = mark.time_us;
    if (mark.sequence == step.last_mark) end_us = mark.time_us;
  }
  out.host_ns = std::max<int64_t>(0, end_us - begin_us - loader_wait(trace, begin_us, end_us).wall_us) * 1000;
  const int64_t begin_ns = begin_us * 1000 - step.unix_ns;  // the times of marks count from 1970, too
  for (StepOperation& made : out.operations) made.asked_ns = std::max<int64_t>(0, made.asked_ns - begin_ns);
  for (StepOrder& made : out.order) made.asked_ns = std::max<int64_t>(0, made.asked_ns - begin_ns);
  remove_loader_wait(trace, begin_us, end_us, &out);
  out.host = observe_host(trace, static_cast<double>(out.host_ns), out.operations.size() + out.order.size());
  const StepInputs inputs = step_inputs(trace);
  out.samples = inputs.samples;
  out.tokens = inputs.tokens;
  return out;
}

}  // namespace gpucast

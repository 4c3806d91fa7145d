// A capture in memory: the contents described in docs/reference/capture-format.md, as plain structs.
//
// Reading never stops at a bad line: the line is counted in `problems`, and reading goes on. read_trace() throws only if nothing useful is
// left (no such file, not a capture, a newer format).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpucast/convolutions.h"
#include "gpucast/failed_rank.h"
#include "gpucast/loader.h"
#include "gpucast/profile_summary.h"
#include "gpucast/recorded_arguments.h"
#include "gpucast/what_if.h"
#include "src/base/event_kind.h"
#include "src/base/ids.h"

namespace gpucast {

using StringId = Id<struct StringTag>;
using StackId = Id<struct StackTag>;
using FrameId = Id<struct FrameTag>;
using ModuleId = Id<struct ModuleTag>;

// Keeps every string once. Views stay valid as long as the table (or the table it was moved to).
class StringTable {
 public:
  StringTable() = default;
  // NOLINTNEXTLINE(performance-noexcept-move-constructor): std::deque moves without noexcept
  StringTable(StringTable&&) = default;
  StringTable& operator=(StringTable&&) = default;
  StringId intern(std::string_view text);
  std::string_view text(StringId id) const { return id.valid() ? std::string_view(strings_[id.index()]) : std::string_view(); }
  size_t size() const { return strings_.size(); }

 private:
  std::deque<std::string> strings_;
  std::unordered_map<std::string_view, StringId> ids_;
};

// One event of CUDACachingAllocator's history.
struct AllocatorEvent {
  EventKind kind = EventKind::alloc;
  StackId stack;
  uint64_t address = 0;    // oom: the card's free memory, in bytes
  int64_t size_bytes = 0;  // alloc: the requested size, before rounding
  uint64_t stream = 0;
  int64_t time_us = 0;
};

enum class MarkKind : uint8_t {
  phase_begin,
  phase_end,
  module_begin,
  module_end,
  module_backward,
  step,
  tensors,
  exception,
  stats_reset,
  capture_begin,
  pool_begin,
  pool_end,
  pool_release,
  other
};
enum class MarkedPhase : uint8_t { model_to_device, forward, evaluation, backward, optimizer_step, zero_grad, unknown };

struct Mark {
  MarkKind kind = MarkKind::other;
  MarkedPhase phase = MarkedPhase::unknown;  // phase_begin, phase_end
  ModuleId module;                           // module_begin, module_end, module_backward
  int64_t sequence = 0;
  int64_t allocs = 0, frees = 0;  // the number of alloc and free_requested events before it
  int64_t step = 0;               // step: the completed optimizer step
  StringId text;                  // exception; module_backward: autograd's node, "ConvolutionBackward0"
  int64_t time_us = 0;            // when it was made
  int64_t cpu_us = 0;             // step: the process's CPU time so far; 0: not recorded
  uint32_t pool = 0;              // capture_begin, pool_begin, pool_end, pool_release: the private pool's number, from 1
};

enum class TensorKind : uint8_t { parameter, parameter_copy, buffer, gradient, optimizer_state, input, unknown };

struct TensorMark {
  TensorKind kind = TensorKind::unknown;
  int64_t sequence = 0;  // of the mark
  uint64_t address = 0;
  int64_t storage_bytes = 0;
  StringId name;
  ModuleId module;
  StringId dtype = {};              // input: "float32"
  std::vector<int64_t> shape = {};  // input
};

struct Module {
  ModuleId parent;
  StringId name, type;
};

struct Frame {
  StringId file, function;
  int64_t line = 0;
};

// Innermost frame first: Trace::frames of Trace::stack_frames[first_frame], [first_frame + 1], ...
struct Stack {
  uint32_t first_frame = 0, frame_count = 0;
};

// Log entries of the virtual libraries that affect memory. Launches and calls are only counted.
enum class VgpuEventKind : uint8_t { mark, copy_to_device, workspace, device_alloc, device_free, library_memory };
struct VgpuEvent {
  VgpuEventKind kind = VgpuEventKind::mark;
  StringId library, what;  // workspace and library_memory
  uint64_t address = 0;    // mark: its sequence number
  int64_t size_bytes = 0;
};

// ---- The observed step: its operators, and the GPU work that they submitted ----

// An operator with its arguments.
struct OperatorKind {
  StringId name;
  std::vector<OperatorArgument> inputs;
};

// Times of operators count from ObservedStep::unix_ns.
struct OperatorCall {
  uint32_t kind = 0;  // in ObservedStep::kinds
  int64_t thread = 0, start_ns = 0, duration_ns = 0;
};

// The resources of a kernel compiled at run time, from its machine code: registers of a thread, shared memory of a block, local memory of a
// thread.
struct CompiledKernel {
  int registers = 0, static_shared_bytes = 0, local_bytes = 0;
  int64_t code = -1;  // number of its PTX in ObservedStep::codes; -1: not known
};

// Bytes of device memory that the host knew when work was submitted.
struct KnownValues {
  uint64_t address = 0;
  std::string bytes;
};

// Of a copy to or from memory of another card, which another process made. CUPTI's number.
inline constexpr int64_t kCopyBetweenCards = 10;

enum class WorkKind : uint8_t { kernel, call, copy, memset };

struct Work {
  WorkKind kind = WorkKind::kernel;
  StringId name;                                  // kernel: mangled; call: "cublasSgemm_v2"
  StringId library;                               // call
  uint32_t arguments = 0;                         // call: in ObservedStep::call_arguments
  std::array<uint32_t, 3> grid = {}, block = {};  // kernel
  int64_t size_bytes = 0;                         // copy, memset; kernel: dynamic shared memory
  int64_t copy_kind = 0;                          // as cudaMemcpyKind, or kCopyBetweenCards
  bool pageable = false;                          // copy: the host side is known not to be pinned
  uint64_t stream = 0;
  int64_t thread = 0, time_ns = 0;                // time since ObservedStep::clock_unix_ns
  int64_t captured_ns = -1, captured_thread = 0;  // in a CUDA graph: time and thread of the script's call; -1: not known, or not in a graph
  int64_t mark = 0;                               // sequence number of the mark before it
  int32_t compiled = -1;                          // kernel: index in ObservedStep::compiled; -1: a library's kernel
  std::vector<uint64_t> pointers;                 // kernel compiled at run time: device addresses among its arguments
  std::string parameters;                         // same: the bytes of all its arguments; "": not known
  std::vector<int64_t> values;                    // same: what its pointers lead to, in ObservedStep::values
};

// What orders the work of streams: events (of CUDA, or of a graph's nodes), and waits of the host.
enum class OrderKind : uint8_t { event_record, stream_wait, host_wait_stream, host_wait_event, host_wait_device, graph_begin, graph_end };
struct Order {
  OrderKind kind = OrderKind::event_record;
  uint64_t stream = 0;
  uint64_t event = 0;
  uint64_t recorded_on = 0;  // stream_wait, host_wait_event: the stream of the event, which may have been recorded before the observed step
  int64_t time_ns = 0;       // as in Work
  size_t work_before = 0;    // the number of pieces of ObservedStep::work submitted earlier
};

struct ObservedStep {
  int64_t step = 0;  // 0: no step was observed
  int64_t unix_ns = 0, clock_unix_ns = 0;
  int64_t first_mark = 0, last_mark = 0;  // the step lies between these
  std::map<int64_t, int64_t> hooks_us;    // for each step: the CPU time used by our own hooks until its end
  std::vector<int64_t>
      unobserved_ns;  // CPU time of the steps that ran after the capture, without hooks: of their quickest parts, then of each step
  int64_t unobserved_pieces = 0;  // of work that such a step submitted, in whole samples of eight; 0: not said
  int64_t yardstick_ns = 0;       // this machine's, as in src/vgpu/core/host_speed.h; 0 in older captures
  bool tf32_products = false, tf32_convolutions = false;
  std::vector<OperatorKind> kinds;
  std::vector<OperatorCall> operators;  // by start
  std::vector<Work> work;               // in the order of submission
  bool has_order = false;               // `order` is complete; false in older captures
  std::vector<Order> order;
  std::vector<CompiledKernel> compiled;
  std::map<int64_t, std::string> codes;  // PTX of compiled kernels
  std::map<int64_t, KnownValues> values;
  std::vector<CallArguments> call_arguments;  // each one once
};

struct UnsupportedCall {
  std::string library, name;
  int64_t count = 0;
};

// The card of the capture, from its header.
struct CaptureGpu {
  std::string id, name;
  int64_t total_memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
};

struct Header {
  int64_t schema_version = 0;
  std::string gpucast_version, source;
  CaptureGpu gpu;
  bool gpu_chosen = false, enforce_capacity = false;
  int64_t capacity_bytes = 0, steps_requested = 0;
  std::string steps_rule;            // "auto", "until-end"; "": steps_requested
  std::vector<std::string> command;  // as the user typed it; what-ifs may have changed it
  std::string folder;                // the folder in which it was started; "": not recorded
  double run_s = 0;                  // the run time of the command; 0: not recorded
  std::vector<WhatIf> what_if;
  int64_t gpus = 1, asked_world_size = 0;  // options of the run; 0: no --world-size
  std::vector<int64_t> asked_ranks;        // with --world-size
};

struct Process {
  int64_t pid = 0, rank = 0, local_rank = 0, world_size = 1, device = 0;
  std::string python, torch, cuda, alloc_conf;
  std::string torch_folder;     // the folder of this PyTorch; "": not recorded
  std::string cudnn_required;   // "9.24.0.43": the version this PyTorch was built for
  std::string cudnn_asked;      // version of the user's cuDNN that chose the workspaces; "": it was not asked
  std::string cudnn_not_asked;  // the reason: off, missing, old; "" in older captures
  std::string places;           // JSON: the user's lines that train, under what-ifs (python/gpucast/places.py); "": not recorded
};

struct TorchStats {
  std::optional<int64_t> peak_allocated_bytes, peak_reserved_bytes, allocated_bytes, reserved_bytes;
  int64_t alloc_retries = 0, ooms = 0;
};

struct RecordedSegment {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  uint64_t stream = 0;
  friend auto operator<=>(const RecordedSegment&, const RecordedSegment&) = default;  // NOLINT(modernize-use-nullptr): false alarm
};

// ---- The parts of a memory snapshot besides its history: the allocator's state at its end ----

// active_pending_free: freed, but still in use by another stream ("active_awaiting_free" in some releases).
enum class SnapshotBlockState : uint8_t { active_allocated, active_pending_free, inactive };

// The file name of the frame that `gpucast export` adds to a stack to name the block's purpose. Reading skips it.
inline constexpr const char* kOwnFrame = "gpucast";

struct SnapshotBlock {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;  // inactive: the request that it held last, or 0
  StackId stack;                // of its allocation
  SnapshotBlockState state = SnapshotBlockState::inactive;
};

// A segment. Each mapped range of an expandable segment is one.
struct SnapshotSegment {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  uint64_t stream = 0;
  bool large = false;  // of the large pool
  bool expandable = false;
  std::pair<int64_t, int64_t> pool = {0, 0};  // id of the private pool; (0, 0): none
  std::vector<SnapshotBlock> blocks;          // they cover the segment, ordered by address
};

// Notes of PyTorch's profiler hooks, with their time, e.g. "Optimizer.step#AdamW.step".
struct Annotation {
  StringId name;
  bool begins = false;
  int64_t time_us = 0;
};

// What held tensors of past steps when the capture ended, as the capture layer found it.
struct KeptHolder {
  std::string name, what, container, node;
  int64_t length = 0, bound = 0;
  bool removes = false, graph = false;
  std::vector<std::string> kept_at;
  std::vector<uint64_t> addresses;  // of some of the tensors
};

struct CaptureEnd {
  std::string reason;  // steps, script_end, exception, timeout, interrupted, killed; "": the record is missing
  std::string how;     // for a killed process: "killed by signal 9 (Killed)"
  int64_t exit_code = 0, optimizer_steps = 0;
  std::optional<TorchStats> torch_stats;
  std::optional<std::vector<RecordedSegment>> segments;
};

// The supervisor's data at the end of the whole command.
struct CommandEnd {
  int64_t exit_code = 0;
  std::vector<FailedRank> failed_ranks;
};

// A warning of the capture layer itself.
struct CaptureWarning {
  std::string code, message;
};

// One of NCCL's, which this process is in.
struct Communicator {
  std::string name;                            // the same in the captures of all its ranks
  std::vector<int64_t> ranks;                  // of the job, in the communicator's order
  std::vector<std::string> descriptions = {};  // of PyTorch's groups that it may belong to: "mesh_tp"
};

// Everything that can be wrong in a capture and still leaves something to report. problem_info() gives severity and sentence.
enum class Problem : uint8_t {
  truncated_file,
  damaged_file,
  no_eof,
  lines_missing,
  bad_json,
  bad_record,
  bad_event,
  no_process,
  no_end,
  several_processes,
  mark_misplaced,
  alloc_outside_segment,
  free_unknown,
  segment_overlap,
  segment_free_in_use,
  split_unexpected,
  phase_unbalanced,
  tensor_without_block,
  bad_segment,
  start_unclear,
  count_,
};
enum class Severity : uint8_t { note, warning };
struct ProblemInfo {
  const char* name;   // the warning's code
  Severity severity;  // notes are not shown in the report
  const char* sentence;
};
const ProblemInfo& problem_info(Problem problem);

struct ProblemCount {
  int64_t count = 0;
  std::string first;  // where it first occurred, and what it was
};

// Counts of each problem. Later stages add to it.
class Problems {
 public:
  void add(Problem problem, const std::string& where) {
    ProblemCount& row = rows_[static_cast<size_t>(problem)];
    if (row.count++ == 0) row.first = where;
  }
  const ProblemCount& operator[](Problem problem) const { return rows_[static_cast<size_t>(problem)]; }

 private:
  std::array<ProblemCount, static_cast<size_t>(Problem::count_)> rows_;
};

struct Trace {
  std::string path;
  Header header;
  Process process;
  CaptureEnd end;
  CommandEnd command_end;
  StringTable strings;
  std::vector<AllocatorEvent> events;
  std::vector<Mark> marks;
  std::vector<TensorMark> tensors;
  std::vector<Module> modules;
  std::vector<Stack> stacks;
  std::vector<FrameId> stack_frames;
  std::vector<Frame> frames;
  std::vector<VgpuEvent> vgpu_events;
  std::vector<SnapshotSegment> end_segments;  // for a snapshot: at its end, ordered by address
  std::vector<Annotation> annotations;
  ObservedStep observed;
  LoaderRecord loader;
  std::vector<UnsupportedCall> unsupported;
  std::vector<Communicator> communicators;
  int64_t node_ranks = 0;                            // of the job, on each node; 0: not recorded
  std::map<std::string, std::string> nccl_settings;  // environment variables
  std::vector<CaptureWarning> warnings;
  std::vector<KeptHolder> kept_holders;
  std::vector<uint64_t> collected;        // addresses of past steps' blocks that only cycles of references kept
  std::optional<ProfileSummary> profile;  // for a profiler trace
  int64_t kernels = 0, library_calls = 0;
  Convolutions convolutions;  // of the library calls
  int64_t vgpu_lines_dropped = 0, vgpu_peak_device_bytes = 0;
  Problems problems;
};

// Reads a capture, or a memory snapshot of PyTorch (header.source "snapshot"); the contents decide which. `device`: the GPU of a snapshot;
// unset: the only one with a history. Throws Error: the file cannot be read, is neither of the two, has a newer schema_version, ends before
// its first event, or is a snapshot without a history or with several devices.
Trace read_trace(const std::string& path, std::optional<int> device = std::nullopt);

// "layer1.0.conv1 (Conv2d)"; "" for no module.
std::string module_label(const Trace& trace, ModuleId id);

}  // namespace gpucast

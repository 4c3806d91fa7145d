// What a GPU would be asked for, as a list of memory blocks: first those of the profiler trace, then those that rules add.
//
// Rules (rules.h) change it in turn: they drop a block (and say why), move its birth or death, change its size, add blocks.
// A dropped block stays in the list, so that every byte of the trace is accounted for at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/profile.h"
#include "src/attribution/span_tree.h"

namespace gpucast {

struct TensorRow;

// A place in the order of events. Times of the trace, and an order among events at the same time.
struct Moment {
  int64_t time_ns = 0;
  int64_t order = 0;
  friend auto operator<=>(const Moment&, const Moment&) = default;  // NOLINT(modernize-use-nullptr): false alarm
};
inline constexpr Moment kBeforeAll = {INT64_MIN, 0};
inline constexpr Moment kNeverFreed = {INT64_MAX, INT64_MAX};

enum class Role : uint8_t { none, parameter, buffer, gradient, optimizer_state, input, workspace };

enum class Fate : uint8_t {
  kept,
  host,               // stays in the host's memory: data loading, what is made before the move to the device, scalars
  kernel_scratch,     // scratch space of a kernel of the CPU's
  other_kernel,       // CUDA computes it another way: what takes its place is added
  optimizer_loop,     // a temporary of the optimizer's loop over parameters, which on CUDA works on all at once
  outside_operators,  // not of an operator: the paper's filter
  before_trace,       // in use before the trace, and nothing says what for
  not_modelled,       // not looked at by the method: later iterations (VeritasEst), how long blocks live (DNNMem)
  count_,
};

struct GpuBlock {
  int64_t size_bytes = 0;
  Moment alloc, free = kNeverFreed;
  SpanIndex span = kNoSpan;           // innermost span at its allocation: where it came from
  const TensorRow* tensor = nullptr;  // of ProfileMetadata::tables, where it is in one
  Role role = Role::none;
  Fate fate = Fate::kept;
  const char* rule = "";  // the rule that added, dropped or changed it last
  bool kept() const { return fate == Fate::kept; }
  void drop(Fate why, const char* by_rule) {
    fate = why;
    rule = by_rule;
  }
};

struct Sequence {
  // A time in which CUDA runs one kernel instead of the trace's operators.
  struct OtherKernel {
    int64_t begin_ns = 0, end_ns = 0;
  };
  std::vector<GpuBlock> blocks;
  size_t traced = 0;                       // the first so many are the trace's, in the order of ProfileBlocks::blocks
  std::vector<OtherKernel> other_kernels;  // by time; do not overlap

  // A block that the trace does not have. Returns its index.
  uint32_t add(int64_t size_bytes, Moment alloc, Moment free, SpanIndex span, const char* rule, Role role = Role::none);

  void set_other_kernels(std::vector<OtherKernel> kernels);  // in any order
  bool in_other_kernel(int64_t time_ns) const;
};

}  // namespace gpucast

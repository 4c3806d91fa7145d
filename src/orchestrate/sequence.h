// The requests that a GPU's allocator would get, as a list of memory blocks: first the blocks of the profiler trace, then those that rules
// add.
//
// Each rule (rules.h) changes the list in turn: it drops a block with a reason, changes the time of its allocation or free, changes its
// size, or adds blocks. A dropped block stays in the list, so that the end result accounts for every byte of the trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/profile.h"
#include "src/attribution/span_tree.h"

namespace gpucast {

struct TensorRow;

// A position in the order of events: a time of the trace, and an order among events at the same time.
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
  host,               // stays in the host's memory: data loading, blocks from before the move to the device, scalars
  kernel_scratch,     // scratch memory of a CPU kernel
  other_kernel,       // CUDA computes it in another way: added blocks replace it
  optimizer_loop,     // a temporary of the optimizer's loop over parameters; on CUDA the optimizer works on all at once
  outside_operators,  // made by no operator: the paper's filter
  before_trace,       // allocated before the trace, for an unknown purpose
  not_modelled,       // the method ignores it: later iterations (VeritasEst), lifetimes of blocks (DNNMem)
  count_,
};

struct GpuBlock {
  int64_t size_bytes = 0;
  Moment alloc, free = kNeverFreed;
  SpanIndex span = kNoSpan;           // innermost span at its allocation
  const TensorRow* tensor = nullptr;  // its row in ProfileMetadata::tables; nullptr: none
  Role role = Role::none;
  Fate fate = Fate::kept;
  const char* rule = "";  // the last rule that added, dropped or changed it
  bool kept() const { return fate == Fate::kept; }
  void drop(Fate why, const char* by_rule) {
    fate = why;
    rule = by_rule;
  }
};

struct Sequence {
  // A time span in which CUDA runs one kernel instead of the trace's operators.
  struct OtherKernel {
    int64_t begin_ns = 0, end_ns = 0;
  };
  std::vector<GpuBlock> blocks;
  size_t traced = 0;                       // the number of blocks from the trace; they come first, in the order of ProfileBlocks::blocks
  std::vector<OtherKernel> other_kernels;  // ordered by time, without overlaps

  // Adds a block that the trace does not have. Returns its index.
  uint32_t add(int64_t size_bytes, Moment alloc, Moment free, SpanIndex span, const char* rule, Role role = Role::none);

  void set_other_kernels(std::vector<OtherKernel> kernels);  // in any order
  bool in_other_kernel(int64_t time_ns) const;
};

}  // namespace gpucast

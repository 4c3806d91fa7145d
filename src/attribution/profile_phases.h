// Steps and phases of a profiler trace.
//
// Found from annotations if there are any: PyTorch's own ("Optimizer.step#Adam.step", "Optimizer.zero_grad#...",
// "enumerate(DataLoader)#...") and gpucast's ("gpucast.forward#1", "gpucast.backward#1", "gpucast.to_device#module"; `gpucast profile`
// writes them). Otherwise, forward is the time of the outermost modules, and backward is the time when autograd's nodes run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/profile.h"
#include "src/attribution/attribution.h"
#include "src/attribution/span_tree.h"

namespace gpucast {

struct PhaseWindow {
  Phase phase = Phase::other;
  int32_t step = 0;  // from 1; 0: before the first
  int64_t begin_ns = 0, end_ns = 0;
  SpanIndex span = kNoSpan;  // the span with this time; kNoSpan: the window was joined from several spans
};

struct ProfilePhases {
  std::vector<PhaseWindow> windows;                                                 // do not overlap; by time
  std::vector<PhaseWindow> optimizer_steps, zero_grads, forwards, backwards, data;  // the windows of one kind
  std::vector<PhaseWindow> to_device;  // gpucast.to_device#tensor and gpucast.on_device, which may lie in other windows
  int32_t steps = 0;                   // complete optimizer steps
  std::vector<int64_t> step_ends_ns;   // of each step
  int64_t loop_begin_ns = INT64_MAX;   // the first forward, or the data fetched for it; INT64_MAX: no loop in the trace
  uint32_t main_thread = 0;            // the thread with the most operators
  bool gpucast_marks = false;          // `gpucast profile` made the trace
  bool modules = false;                // the trace names modules

  const PhaseWindow* window_at(int64_t time_ns) const;  // null: in none
  int32_t step_at(int64_t time_ns) const;               // the step that is running then: 1 + number of steps that ended earlier
};

ProfilePhases find_phases(const ProfileTrace& trace, const SpanTree& tree);

}  // namespace gpucast

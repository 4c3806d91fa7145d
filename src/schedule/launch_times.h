// The duration of each launch, library call, copy and fill on a card. A run with a clock asks for them; the answers come from a capture of
// an earlier run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gpucast/trace.h"
#include "src/time/card_rates.h"
#include "src/time/gpu_timeline.h"
#include "src/work/step_operations.h"

namespace gpucast {

class LaunchTimes {
 public:
  // Without a capture: every launch is timed by its threads, every call by its sizes.
  explicit LaunchTimes(const CardRates& rates) : rates_(rates) {}
  // `step`: of `trace`, a capture of the same script. Its launches are timed by the operators that made them.
  LaunchTimes(const Trace& trace, const StepOperations& step, const CardRates& rates);

  // "kernel GX GY GZ BX BY BZ SHARED NAME", "call LIBRARY NAME JSON", "copy KIND BYTES", "fill BYTES" (src/vgpu/core/clock_work.cc). Any
  // other question gets no time. Kernels of the capture get times from their operators; other kernels are estimated from their threads.
  GpuTimeline::Work answer(std::string_view question);

  // Questions so far, and how many of them were about kernels and calls that are not known.
  int64_t questions() const { return questions_; }
  int64_t unknown_questions() const { return unknown_questions_; }

 private:
  struct TimeSum {
    double ns = 0, weighted_demand = 0, count = 0;
  };
  struct SeenKernel {
    TimeSum known, unknown;
  };

  const CardRates rates_;
  bool tf32_products_ = false, tf32_convolutions_ = false;
  std::unordered_map<std::string, SeenKernel> kernels_;
  int64_t questions_ = 0, unknown_questions_ = 0;
};

}  // namespace gpucast

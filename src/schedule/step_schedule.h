// When a step's operations begin and end on a card.
#pragma once

#include <vector>

#include "gpucast/time_range.h"
#include "src/schedule/step_constants.h"
#include "src/time/card_rates.h"
#include "src/time/duration.h"
#include "src/time/gpu_timeline.h"
#include "src/work/step_operations.h"

namespace gpucast {

// A step's times when it follows another one that filled the queue. The kernels of a stream run in order and never before their launch; the
// kernels of several streams share the card.
struct Schedule {
  double step_ns = 0;
  double gpu_ns = 0;  // if the host launched everything at once
  double host_ns = 0;
};

// One duration for each of step.shapes.
std::vector<Duration> durations_of(const StepOperations& step, const CardRates& rates);

// `batch_ns`: the host's work for each batch that it gets from its loader.
// `spans`: receives the begin and end of each operation, in the order of `step`; may be nullptr.
Schedule schedule(const StepOperations& step, const std::vector<Duration>& durations, const StepConstants& constants, double host_scale,
                  std::vector<GpuTimeline::Span>* spans = nullptr, double batch_ns = 0);

// The host's time in a step that is not observed, as a share of its time in the observed one.
double host_scale(const HostObservation& host, const StepConstants& constants);

// The GPU's time for a step. It is the same in each run of a script; the host's time is not.
TimeRange gpu_time_of_step(const StepOperations& step, const CardRates& rates);

}  // namespace gpucast

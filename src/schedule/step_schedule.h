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

// When the step ends, after one before it has filled the queue: kernels of a stream run in order, none before it was asked for, those of
// several streams share the card.
struct Schedule {
  double step_ns = 0;
  double gpu_ns = 0;  // of a host that asks for all at once
  double host_ns = 0;
};

Engine engine_of(const Operation& operation);
// The part of its engine that it keeps busy: a kernel that reaches little of the card's rates leaves room for another stream's.
double demand_of(const Duration& duration, Engine engine, const StepConstants& constants);

// By shape.
std::vector<Duration> durations_of(const StepOperations& step, const CardRates& rates);

// `batch_ns`: the host works so long for each batch that it takes from its loader.
// `spans`: where each operation begins and ends, in the order of `step`; nullptr: not asked for.
Schedule schedule(const StepOperations& step, const std::vector<Duration>& durations, const StepConstants& constants, double host_scale,
                  std::vector<GpuTimeline::Span>* spans = nullptr, double batch_ns = 0);

// The host's time for a step that nobody observes, as a share of its time in the observed one.
double host_scale(const HostObservation& host, const StepConstants& constants);

// How long the GPU alone works for a step: the same in each run of a script, which the host's part is not.
TimeRange gpu_time_of_step(const StepOperations& step, const CardRates& rates);

}  // namespace gpucast

#include "src/schedule/step_schedule.h"

#include <algorithm>
#include <cstddef>

#include "src/schedule/step_player.h"

namespace gpucast {

Schedule schedule(const StepOperations& step, const std::vector<Duration>& durations, const StepConstants& constants, double host_scale,
                  std::vector<GpuTimeline::Span>* spans, double batch_ns) {
  Schedule out;
  if (step.streams.size() > 1) {
    StepPlayer alone(step, durations, constants, {.costs = false});
    alone.play_alone();
    out.gpu_ns = alone.end_ns() - alone.begin_ns();
  } else {
    for (const StepOperation& operation : step.operations) out.gpu_ns += durations[operation.shape].expected_ns;
  }
  StepPlayer player(step, durations, constants, {.scale = host_scale, .batch_ns = batch_ns});
  player.play_alone();
  const double begin_ns = player.begin_ns();
  out.step_ns = player.end_ns() - begin_ns;
  out.host_ns = static_cast<double>(step.host_ns) * host_scale + player.calls_ns();
  if (spans) {
    spans->clear();
    for (size_t i = 0; i < step.operations.size(); ++i)
      spans->push_back({player.span(i).start_ns - begin_ns, player.span(i).end_ns - begin_ns});
  }
  return out;
}

double host_scale(const HostObservation& host, const StepConstants& constants) {
  if (host.observed_ns <= 0) return host.pace;
  if (host.unobserved_ns > 0) return host.pace * host.unobserved_ns / host.observed_ns;
  double plain_ns = host.observed_ns;
  if (host.own_ns > 0) plain_ns = std::min(plain_ns, host.own_ns / (host.timed ? constants.timed_factor : constants.untimed_factor));
  if (host.other_ns > 0) plain_ns = std::min(plain_ns, host.other_ns);
  if (host.alone) plain_ns /= constants.untimed_factor;
  const double watching_ns =
      host.timed ? static_cast<double>(host.allocations) * constants.recorded_ns + static_cast<double>(host.marks) * constants.hook_ns
                 : static_cast<double>(host.marks) * constants.mark_ns;
  return host.pace * std::clamp((plain_ns - watching_ns) / host.observed_ns, constants.least_share * plain_ns / host.observed_ns, 1.0);
}

TimeRange gpu_time_of_step(const StepOperations& step, const CardRates& rates) {
  const double ns = schedule(step, durations_of(step, rates), step_constants(), 1).gpu_ns;
  return {ns * rates.step_interval.low, ns, ns * rates.step_interval.high};
}

std::vector<Duration> durations_of(const StepOperations& step, const CardRates& rates) {
  std::vector<Duration> out;
  out.reserve(step.shapes.size());
  for (const Operation& shape : step.shapes) out.push_back(operation_duration(shape, rates));
  return out;
}

}  // namespace gpucast
